// Package listfilter selects entries of a list with Docker's filters: KEY=VALUE, where several values of one key
// select any of them, several labels select all of them, and different keys restrict each other. It does not know
// the lists. Beware: since and before name another entry, which must be in the caller's view of the list.
package listfilter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Limits of one request.
const (
	MaxFilters = 32
	MaxBytes   = 1024 // of one filter: a label of the largest size fits
)

// Keys with a meaning of their own. All other keys compare a field.
const (
	Label  = "label"  // KEY or KEY=VALUE
	Name   = "name"   // a part of the entry's name
	Since  = "since"  // made after another entry
	Before = "before" // made before another entry
)

// shown limits the text of a filter in an error, in bytes.
const shown = 80

// Rules are the keys that a list knows. A key's values are any, unless it lists them.
type Rules map[string][]string

// Filter selects entries. The zero value selects all.
type Filter struct {
	values map[string][]string // by key
}

// Parse reads filters.
func Parse(filters []string, rules Rules) (Filter, error) {
	if len(filters) > MaxFilters {
		return Filter{}, fmt.Errorf("%d filters, want at most %d", len(filters), MaxFilters)
	}
	f := Filter{map[string][]string{}}
	for _, text := range filters {
		key, value, ok := strings.Cut(text, "=")
		known, exists := rules[key]
		switch {
		case len(text) > MaxBytes:
			return Filter{}, fmt.Errorf("filter %q has %d bytes, want at most %d", ellipsis.Clip(text, shown), len(text),
				MaxBytes)
		case !exists:
			return Filter{}, fmt.Errorf("filter %q is not known here: want %s", ellipsis.Clip(key, shown),
				strings.Join(slices.Sorted(maps.Keys(rules)), ", "))
		case !ok || value == "":
			return Filter{}, fmt.Errorf("filter %q: want %s=VALUE", ellipsis.Clip(text, shown), key)
		case len(known) > 0 && !slices.Contains(known, value):
			return Filter{}, fmt.Errorf("filter %s=%q: want %s", key, ellipsis.Clip(value, shown), strings.Join(known, ", "))
		}
		f.values[key] = append(f.values[key], value)
	}
	return f, nil
}

// Entry is an entry of a list, as filters see it.
type Entry struct {
	Name   string            // a filter by name selects a part of it
	Short  string            // another name of it, for since and before; may be empty
	Made   time.Time         // for since and before
	Labels map[string]string // may be nil
	// Fields are the values of the other keys. A filter selects any of them.
	Fields map[string][]string
}

// Select returns the entries of a list that match. It returns an error if since or before names an entry that is
// not in the list.
func Select[T any](f Filter, list []T, see func(T) Entry) ([]T, error) {
	if len(f.values) == 0 {
		return list, nil
	}
	entries := make([]Entry, len(list))
	made := map[string]time.Time{}
	for i, e := range list {
		entries[i] = see(e)
		made[entries[i].Name], made[entries[i].Short] = entries[i].Made, entries[i].Made
	}
	after, before, err := f.bounds(made)
	if err != nil {
		return nil, err
	}
	var out []T
	for i, e := range entries {
		inside := (after.IsZero() || e.Made.After(after)) && (before.IsZero() || e.Made.Before(before))
		if inside && f.Matches(e) {
			out = append(out, list[i])
		}
	}
	return out, nil
}

// bounds returns the times that since and before mean. They are zero without these filters. Of several, the
// narrowest applies.
func (f Filter) bounds(made map[string]time.Time) (after, before time.Time, err error) {
	at := func(key, name string) (time.Time, error) {
		t, ok := made[name]
		if !ok {
			return t, fmt.Errorf("filter %s=%q: there is no such entry", key, ellipsis.Clip(name, shown))
		}
		return t, nil
	}
	for _, name := range f.values[Since] {
		t, err := at(Since, name)
		if err != nil {
			return after, before, err
		}
		if t.After(after) {
			after = t
		}
	}
	for _, name := range f.values[Before] {
		t, err := at(Before, name)
		if err != nil {
			return after, before, err
		}
		if before.IsZero() || t.Before(before) {
			before = t
		}
	}
	return after, before, nil
}

func (f Filter) Matches(e Entry) bool {
	for key, values := range f.values {
		switch key {
		case Since, Before:
		case Label:
			if slices.ContainsFunc(values, func(v string) bool { return !hasLabel(e.Labels, v) }) {
				return false
			}
		case Name:
			if !slices.ContainsFunc(values, func(v string) bool { return strings.Contains(e.Name, v) }) {
				return false
			}
		default:
			if !slices.ContainsFunc(values, func(v string) bool { return slices.Contains(e.Fields[key], v) }) {
				return false
			}
		}
	}
	return true
}

// hasLabel reports whether a label has a key, or a key and a value.
func hasLabel(labels map[string]string, want string) bool {
	key, value, exact := strings.Cut(want, "=")
	have, ok := labels[key]
	return ok && (!exact || have == value)
}
