package reply

import "reflect"

// maxDepth limits the measuring of a value that refers to itself.
const maxDepth = 64

// Size returns the number of bytes of a value, including all referenced data. Data with two
// references counts twice.
func Size(v any) int64 {
	if v == nil {
		return 0
	}
	r := reflect.ValueOf(v)
	return int64(r.Type().Size()) + refers(r, maxDepth)
}

// refers returns the size of the data a value refers to, without the value itself.
func refers(v reflect.Value, depth int) (n int64) {
	if depth == 0 {
		return 0
	}
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = int64(v.Elem().Type().Size()) + refers(v.Elem(), depth-1)
		}
	case reflect.Slice:
		n = int64(v.Type().Elem().Size()) * int64(v.Cap())
		n += elements(v, depth)
	case reflect.Array:
		n = elements(v, depth)
	case reflect.Map:
		const perEntry = 16 // of the table
		each := int64(v.Type().Key().Size()+v.Type().Elem().Size()) + perEntry
		n = each * int64(v.Len())
		for it := v.MapRange(); it.Next(); {
			n += refers(it.Key(), depth-1) + refers(it.Value(), depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += refers(v.Field(i), depth-1)
		}
	}
	return n
}

func elements(v reflect.Value, depth int) (n int64) {
	if flat(v.Type().Elem().Kind()) {
		return 0
	}
	for i := range v.Len() {
		n += refers(v.Index(i), depth-1)
	}
	return n
}

// flat reports whether values of a kind contain no references.
func flat(k reflect.Kind) bool { return k <= reflect.Complex128 }
