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

// BodyCost is the memory for one byte of a JSON body: the body and its decoded form.
const BodyCost = 2

// LeastOutput is the free memory required before the daemon starts a program with collected output,
// or compares snapshots. It is in bytes.
const LeastOutput = 1 << 20
