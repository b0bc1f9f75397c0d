package ui

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
)

// shape is the JSON form of a Go type: the fields of an object, the elements of a list, or neither.
// The zero value is an unknown form.
type shape struct{ t reflect.Type }

func shapeOf(v any) shape { return shape{reflect.TypeOf(v)}.direct() }

// direct removes pointers. A type with its own JSON has an unknown form.
func (s shape) direct() shape {
	marshal, text := reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()
	for s.t != nil {
		if s.t.Implements(marshal) || s.t.Implements(text) || s.t.Kind() == reflect.Interface {
			return shape{}
		}
		if s.t.Kind() != reflect.Pointer {
			return s
		}
		s.t = s.t.Elem()
	}
	return s
}

// element returns the form of a list's elements, and other forms unchanged.
func (s shape) element() shape {
	if s.t != nil && (s.t.Kind() == reflect.Slice || s.t.Kind() == reflect.Array) {
		return shape{s.t.Elem()}.direct()
	}
	return s
}

// object reports whether the form has known fields.
func (s shape) object() bool { return s.t != nil && s.t.Kind() == reflect.Struct }

// field is a field of an object.
type field struct {
	name string
	of   shape
}

// fields returns the fields of an object in the order of the JSON.
func (s shape) fields() (out []field) {
	if !s.object() {
		return nil
	}
	for i := range s.t.NumField() {
		f := s.t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			out = append(out, shape{f.Type}.direct().fields()...)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			out = append(out, field{name, shape{f.Type}.direct()})
		}
	}
	return out
}

// field returns the form of a field. It is unknown for the key of a map.
func (s shape) field(name string) (of shape, known bool) {
	if s.t != nil && s.t.Kind() == reflect.Map {
		return shape{s.t.Elem()}.direct(), true
	}
	for _, f := range s.fields() {
		if f.name == name {
			return f.of, true
		}
	}
	return shape{}, s.t == nil
}

// absent is the value of a field the JSON leaves out, or null. It prints as "", is false, and has
// absent fields.
type absent map[string]absent

func (absent) String() string { return "" }

// fill adds absent fields to a decoded value.
func (s shape) fill(v any) any {
	switch v := v.(type) {
	case nil:
		return absent(nil)
	case []any:
		for i := range v {
			v[i] = s.element().fill(v[i])
		}
	case map[string]any:
		for key := range v {
			of, _ := s.field(key)
			v[key] = of.fill(v[key])
		}
		for _, f := range s.fields() {
			if _, ok := v[f.name]; !ok {
				v[f.name] = absent(nil)
			}
		}
		if !s.object() {
			return opened(v)
		}
	}
	return v
}

// opened returns an object with free keys in a form whose missing keys print as "" or 0.
func opened(m map[string]any) any {
	texts, numbers := map[string]string{}, map[string]float64{}
	for key, v := range m {
		switch v := v.(type) {
		case string:
			texts[key] = v
		case float64:
			numbers[key] = v
		case int64:
			numbers[key] = float64(v)
		}
	}
	switch len(m) {
	case len(texts):
		return texts
	case len(numbers):
		return numbers
	}
	return m
}

// given returns a value without its absent fields, for JSON.
func given(v any) any {
	switch v := v.(type) {
	case absent:
		return nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = given(v[i])
		}
		return out
	case map[string]any:
		out := maps.Clone(v)
		for key, value := range v {
			if _, is := value.(absent); is {
				delete(out, key)
			} else {
				out[key] = given(value)
			}
		}
		return out
	}
	return v
}

// decoded returns the JSON form of a value as maps, lists, texts and numbers.
func decoded(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var out any
	if err := dec.Decode(&out); err != nil {
		return nil, errors.Join(errors.New("decode a result"), err)
	}
	return numbers(out), nil
}

// numbers replaces the decoder's numbers by int64, or by float64 if they have a fraction.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = numbers(v[key])
		}
	}
	return v
}
