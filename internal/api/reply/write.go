package reply

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Piece is the number of bytes encoded at a time.
const Piece = 48 << 10 // divisible by 3, so that pieces of base64 need no padding

// Write writes a value as JSON with a newline, like encoding/json without HTML escapes. It encodes
// a large value piece by piece.
func Write(w io.Writer, v any) error {
	p := &pieces{w: w}
	p.enc = encoder(&p.buf)
	if v == nil {
		p.text("null\n")
		return p.flush()
	}
	if err := p.value(reflect.ValueOf(v)); err != nil {
		return err
	}
	p.text("\n")
	return p.flush()
}

// pieces collects small parts of an answer until they make a piece.
type pieces struct {
	w   io.Writer
	buf bytes.Buffer
	enc *json.Encoder // into buf
}

func (p *pieces) text(s string) { p.buf.WriteString(s) }

func (p *pieces) flush() error {
	_, err := p.w.Write(p.buf.Bytes())
	p.buf.Reset()
	return err
}

// value writes any value.
func (p *pieces) value(v reflect.Value) error {
	if p.buf.Len() >= Piece {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if !v.IsValid() || encodesItself(v.Type()) || int64(v.Type().Size())+refers(v, maxDepth) <= Piece {
		return p.whole(v)
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		return p.value(v.Elem()) // not nil, because it is large
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return p.list(v)
		}
	case reflect.Map:
		if k := v.Type().Key(); k.Kind() == reflect.String && !encodesItself(k) {
			return p.object(v)
		}
	case reflect.Struct:
		if fields, ok := fieldsOf(v.Type()); ok {
			return p.fields(v, fields)
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[json.Number]() {
			return p.whole(v)
		}
		if err := p.flush(); err != nil {
			return err
		}
		return WriteString(p.w, v.String())
	}
	return p.whole(v)
}

// encodesItself reports whether encoding/json uses the methods of a type.
func encodesItself(t reflect.Type) bool {
	for _, t := range []reflect.Type{t, reflect.PointerTo(t)} {
		if t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			return t.Kind() != reflect.Interface
		}
	}
	return false
}

// whole encodes a value with encoding/json.
func (p *pieces) whole(v reflect.Value) error {
	var of any
	switch {
	case !v.IsValid():
	case v.CanAddr():
		of = v.Addr().Interface() // so that pointer methods are called
	default:
		of = v.Interface()
	}
	if err := p.enc.Encode(of); err != nil {
		return err
	}
	p.buf.Truncate(p.buf.Len() - 1) // the newline
	return nil
}

func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

func (p *pieces) list(v reflect.Value) error {
	lead := "["
	for i := range v.Len() {
		p.text(lead)
		if err := p.value(v.Index(i)); err != nil {
			return err
		}
		lead = ","
	}
	if lead == "[" {
		p.text(lead)
	}
	p.text("]")
	return nil
}

func (p *pieces) object(v reflect.Value) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	lead := "{"
	for _, k := range keys {
		p.text(lead)
		if err := p.member(k, v.MapIndex(k)); err != nil {
			return err
		}
		lead = ","
	}
	p.text("}")
	return nil
}

// member writes a name and its value.
func (p *pieces) member(name, v reflect.Value) error {
	if err := p.value(name); err != nil {
		return err
	}
	p.text(":")
	return p.value(v)
}

func (p *pieces) fields(v reflect.Value, fields []field) error {
	lead := "{"
	for _, f := range fields {
		at := v.FieldByIndex(f.index)
		if f.omitted(at) {
			continue
		}
		p.text(lead)
		if err := p.member(reflect.ValueOf(f.name), at); err != nil {
			return err
		}
		lead = ","
	}
	if lead == "{" {
		p.text(lead)
	}
	p.text("}")
	return nil
}

// WriteString writes a JSON string. A piece ends between two characters.
func WriteString(w io.Writer, s string) error {
	if _, err := io.WriteString(w, `"`); err != nil {
		return err
	}
	var piece bytes.Buffer
	enc := encoder(&piece)
	for len(s) > 0 {
		n := min(len(s), Piece)
		for back := 0; n < len(s) && back < utf8.UTFMax-1 && !utf8.RuneStart(s[n]); back++ {
			n--
		}
		piece.Reset()
		if err := enc.Encode(s[:n]); err != nil {
			return err
		}
		if _, err := w.Write(bytes.TrimSuffix(piece.Bytes(), []byte("\"\n"))[1:]); err != nil {
			return err
		}
		s = s[n:]
	}
	_, err := io.WriteString(w, `"`)
	return err
}

// WriteBase64 writes bytes as a JSON string in base64.
func WriteBase64(w io.Writer, s string) error {
	if _, err := io.WriteString(w, `"`); err != nil {
		return err
	}
	enc := base64.NewEncoder(base64.StdEncoding, w)
	for len(s) > 0 {
		n := min(len(s), Piece)
		if _, err := io.WriteString(enc, s[:n]); err != nil {
			return err
		}
		s = s[n:]
	}
	if err := enc.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(w, `"`)
	return err
}
