package routing

import (
	"github.com/danielgtaylor/huma/v2"
)

// Body is an answer with one JSON value.
type Body[T any] struct{ Body T }

// None is the input of an operation without parameters.
type None struct{}

// TextResponse documents an answer that is text.
func TextResponse(description, contentType string) *huma.Response {
	return &huma.Response{
		Description: description,
		Content:     map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: "string"}}},
	}
}

// Answer returns the answer with a value.
func Answer[T any](v T) *Body[T] { return &Body[T]{v} }
