package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// find returns the value at a path: "0.id", "children.#", "." for all.
func find(v any, path string) (any, error) {
	if path == "." {
		return v, nil
	}
	for _, part := range strings.Split(path, ".") {
		switch at := v.(type) {
		case []any:
			if part == "#" {
				v = float64(len(at))
				continue
			}
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) {
				return nil, fmt.Errorf("%s: no element %s in a list of %d", path, part, len(at))
			}
			v = at[i]
		case map[string]any:
			if part == "#" {
				v = float64(len(at))
				continue
			}
			v = at[part]
		default:
			if v == nil && part == "#" { // an absent list is empty
				v = float64(0)
				continue
			}
			return nil, fmt.Errorf("%s: %s of %v", path, part, v)
		}
	}
	return v, nil
}

// match compares a value with an expectation.
func match(got, want any) error {
	if s, ok := want.(string); ok {
		switch {
		case s == "*":
			if got == nil {
				return fmt.Errorf("is absent")
			}
			return nil
		case len(s) > 1 && s[0] == '/' && s[len(s)-1] == '/' && strings.Count(s, "/") == 2:
			return matchPattern(got, s[1:len(s)-1])
		}
	}
	if normal(want) == nil && got == nil {
		return nil
	}
	if !reflect.DeepEqual(got, normal(want)) {
		return fmt.Errorf("is %v, want %v", brief(got), want)
	}
	return nil
}

func matchPattern(got any, pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	text, ok := got.(string)
	if !ok && got != nil {
		b, _ := json.Marshal(got)
		text = string(b)
	}
	if !re.MatchString(text) {
		return fmt.Errorf("is %v, want a match of %s", brief(got), pattern)
	}
	return nil
}

// normal gives a value the types of decoded JSON.
func normal(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var out any
	if json.Unmarshal(b, &out) != nil {
		return v
	}
	return out
}

func brief(v any) string {
	b, _ := json.Marshal(v)
	if len(b) > 300 {
		return string(b[:300]) + "..."
	}
	return string(b)
}
