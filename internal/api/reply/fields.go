package reply

import (
	"reflect"
	"strings"
)

// field is a field of a struct, or of a struct embedded in it.
type field struct {
	name      string
	index     []int
	omitEmpty bool
}

// omitted reports whether a field with a value is left out.
func (f field) omitted(v reflect.Value) bool {
	if !f.omitEmpty {
		return false
	}
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// fieldsOf returns the fields of a struct in order. It returns false for a struct with tags other
// than names and omitempty. encoding/json encodes such a struct as a whole.
func fieldsOf(t reflect.Type) (fields []field, ok bool) {
	names := map[string]bool{}
	return fields, addFields(t, nil, names, &fields)
}

func addFields(t reflect.Type, at []int, names map[string]bool, to *[]field) bool {
	for i := range t.NumField() {
		sf := t.Field(i)
		index := append(at[:len(at):len(at)], i)
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-", !sf.Anonymous && !sf.IsExported():
			continue
		case sf.Anonymous && name == "":
			if sf.Type.Kind() != reflect.Struct || !addFields(sf.Type, index, names, to) {
				return false
			}
			continue
		case sf.Anonymous && !sf.IsExported(), options != "" && options != "omitempty", !plainName(name):
			return false
		case name == "":
			name = sf.Name
		}
		if names[name] {
			return false // one hides the other
		}
		names[name] = true
		*to = append(*to, field{name, index, options == "omitempty"})
	}
	return true
}

// plainName reports whether encoding/json uses a name unchanged.
func plainName(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	})
}
