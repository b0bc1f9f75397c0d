package mcp

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// schemaOf returns the schema of a type. Some providers of models do not accept a list of types, so
// it has none: optional values are absent, and not null.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic("a tool's type has no schema: " + err.Error())
	}
	tidy(s)
	return s
}

// tidy replaces the type "null or X" by X, in all parts of a schema.
func tidy(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if i := slices.Index(s.Types, "null"); i >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-i], nil
	}
	for _, p := range s.Properties {
		tidy(p)
	}
	tidy(s.Items)
	tidy(s.AdditionalProperties)
}

// dropNulls takes arguments that are null for absent ones, because models send both.
func dropNulls(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if r, ok := req.(*sdk.CallToolRequest); ok && r.Params != nil {
			r.Params.Arguments = withoutNulls(r.Params.Arguments)
		}
		return next(ctx, method, req)
	}
}

func withoutNulls(arguments json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(arguments, &all) != nil {
		return arguments // the tool reports it
	}
	before := len(all)
	for name, value := range all {
		if string(value) == "null" {
			delete(all, name)
		}
	}
	if len(all) == before {
		return arguments
	}
	b, err := json.Marshal(all)
	if err != nil {
		return arguments
	}
	return b
}
