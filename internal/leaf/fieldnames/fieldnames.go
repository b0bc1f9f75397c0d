// Package fieldnames finds fields of a JSON body that its Go type does not have, and for each the known field
// with the most similar name. It matches names exactly, while encoding/json ignores their case. Both APIs call it
// after they have limited the body's size. It checks only names, not values. Beware: it does not look into types
// with their own decoder.
package fieldnames

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Field is a field of the body that its Go type lacks.
type Field struct {
	Path  string // from the top of the body, such as limits.cpus or hosts[0].port
	Near  string // path of the object's most similar known field; empty if the object has no fields
	Close bool   // Near is so similar that it was probably meant
}

// maxFields limits the number of reported fields.
const maxFields = 8

// Unknown returns the unknown fields of a body to be decoded into v, a pointer. If the body is not valid JSON, it
// returns nil.
func Unknown(body []byte, v any) []Field {
	var value any
	if json.Unmarshal(body, &value) != nil {
		return nil
	}
	var w walk
	w.value(value, reflect.TypeOf(v), "")
	return w.found
}

type walk struct{ found []Field }

// value checks a value to be decoded into type t.
func (w *walk) value(value any, t reflect.Type, path string) {
	for t != nil && t.Kind() == reflect.Pointer {
		if t.Implements(unmarshaler) {
			return
		}
		t = t.Elem()
	}
	if t == nil || len(w.found) >= maxFields || reflect.PointerTo(t).Implements(unmarshaler) {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		w.object(value, t, path)
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return
		}
		for i, item := range value {
			w.value(item, t.Elem(), path+"["+strconv.Itoa(i)+"]")
		}
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (w *walk) object(object map[string]any, t reflect.Type, path string) {
	if path != "" {
		path += "."
	}
	var known map[string]reflect.Type
	switch t.Kind() {
	case reflect.Struct:
		known = fields(t)
	case reflect.Map:
		for _, name := range slices.Sorted(maps.Keys(object)) {
			w.value(object[name], t.Elem(), path+name)
		}
		return
	default:
		return
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if of, ok := known[name]; ok {
			w.value(object[name], of, path+name)
		} else if len(w.found) < maxFields {
			near, close := Nearest(name, slices.Sorted(maps.Keys(known)))
			if near != "" {
				near = path + near
			}
			w.found = append(w.found, Field{path + name, near, close})
		}
	}
}

// fields returns the types of a struct's fields by their JSON names.
func fields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case f.Anonymous && name == "" && embedded.Kind() == reflect.Struct:
			for name, of := range fields(embedded) {
				if _, outer := out[name]; !outer {
					out[name] = of
				}
			}
		case !f.IsExported() || name == "-":
		case name == "":
			out[f.Name] = f.Type
		default:
			out[name] = f.Type
		}
	}
	return out
}

// Nearest returns the known name with the smallest edit distance, and whether that is small. It
// returns "" if no name is known.
func Nearest(name string, known []string) (near string, close bool) {
	least := -1
	for _, k := range known {
		d := distance(plain(name), plain(k))
		if len(name) > 2 && strings.HasPrefix(plain(k), plain(name)) {
			d = min(d, 2)
		}
		if least < 0 || d < least {
			near, least = k, d
		}
	}
	return near, near != "" && least <= min(2, len(plain(near))/4)
}

// plain returns a name without case, underscores and dashes, truncated to keep distance cheap.
func plain(name string) string {
	name = strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	return name[:min(len(name), 64)]
}

// distance returns the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
