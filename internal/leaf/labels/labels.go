// Package labels checks and changes the labels of sandboxes and snapshots: pairs of a key and a value that
// users choose to find their objects again. It does not store them. Beware: sets are shared between copies of an
// object, so functions return new maps and never change their arguments.
package labels

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/forkd/forkd/internal/leaf/ellipsis"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// Limits of one object's labels, because each list repeats them. Rules of retention do not count: the daemon adds
// its defaults to sets of any size, and a full set can still be pinned.
const (
	MaxLabels = 64
	MaxKey    = 128      // bytes
	MaxValue  = 512      // bytes
	MaxTotal  = 16 << 10 // bytes of all keys and values
)

// shown limits the text of a label in an error, in bytes.
const shown = 80

// Check returns an error if the set breaks a rule. It names the first bad key in alphabetical order.
func Check(set map[string]string) error {
	count, total := 0, 0
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if err := checkKey(k); err != nil {
			return err
		}
		if err := checkValue(k, set[k]); err != nil {
			return err
		}
		if !retention.IsRule(k) {
			count, total = count+1, total+len(k)+len(set[k])
		}
	}
	if count > MaxLabels {
		return fmt.Errorf("%d labels, want at most %d", count, MaxLabels)
	}
	if total > MaxTotal {
		return fmt.Errorf("labels of %d bytes, want at most %d for all keys and values", total, MaxTotal)
	}
	return nil
}

// checkKey admits printable ASCII. A dash at an end is refused, because a command line reads KEY- as the
// removal of KEY, and -KEY as a flag.
func checkKey(k string) error {
	switch {
	case k == "":
		return errors.New("label without a key")
	case len(k) > MaxKey:
		return fmt.Errorf("label %q: its key has %d bytes, want at most %d", ellipsis.Clip(k, shown), len(k), MaxKey)
	case strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r > '~' || r == '=' }):
		return fmt.Errorf(`label %q: want a key of printable ASCII characters without spaces and "="`,
			ellipsis.Clip(k, shown))
	case strings.HasPrefix(k, "-") || strings.HasSuffix(k, "-"):
		return fmt.Errorf("label %q: a key cannot begin or end with a dash", ellipsis.Clip(k, shown))
	}
	return nil
}

// checkValue admits printable characters and spaces. Control and format characters could change a terminal.
func checkValue(k, v string) error {
	switch {
	case len(v) > MaxValue:
		return fmt.Errorf("label %q: its value has %d bytes, want at most %d", k, len(v), MaxValue)
	case !utf8.ValidString(v) || strings.ContainsRune(v, utf8.RuneError): // JSON decoders replace invalid bytes
		return fmt.Errorf("label %q: its value is not valid UTF-8", k)
	case strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("label %q: its value has a character that is not printable", k)
	}
	return nil
}

// Merge returns the labels of a, overridden and extended by those of b. It returns nil if both are empty.
func Merge(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// Change is a change of an object's labels.
type Change struct {
	Set    map[string]string // keys to add or to replace
	Remove []string          // keys to remove; a missing one is no error
}

// Check returns an error if the change is empty, contradicts itself, or names a key that no label can have.
func (c Change) Check() error {
	if len(c.Set) == 0 && len(c.Remove) == 0 {
		return errors.New("no label to set or to remove")
	}
	if len(c.Remove) > MaxLabels {
		return fmt.Errorf("%d labels to remove, want at most %d", len(c.Remove), MaxLabels)
	}
	for _, k := range c.Remove {
		if err := checkKey(k); err != nil {
			return err
		}
		if _, both := c.Set[k]; both {
			return fmt.Errorf("label %q is to be set and removed", k)
		}
	}
	return Check(c.Set)
}

// Apply returns the labels after the change. It returns an error if they break a rule.
func (c Change) Apply(set map[string]string) (map[string]string, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	out := Merge(set, c.Set)
	for _, k := range c.Remove {
		delete(out, k)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, Check(out)
}

// Fitting returns the pairs of a set that are labels, in alphabetical order up to the limits. It is for pairs
// with looser rules, such as E2B's metadata.
func Fitting(set map[string]string) map[string]string {
	var out map[string]string
	total := 0
	for _, k := range slices.Sorted(maps.Keys(set)) {
		size := len(k) + len(set[k])
		if checkKey(k) != nil || checkValue(k, set[k]) != nil || len(out) == MaxLabels || total+size > MaxTotal {
			continue
		}
		if total += size; out == nil {
			out = map[string]string{}
		}
		out[k] = set[k]
	}
	return out
}

// Parse reads the form KEY=VALUE of command lines. KEY alone is KEY with an empty value.
func Parse(pairs []string) (map[string]string, error) {
	var out map[string]string
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		if err := checkKey(k); err != nil {
			return nil, err
		}
		out = Merge(out, map[string]string{k: v})
	}
	return out, Check(out)
}

// ParseChange reads the form of kubectl: KEY=VALUE sets a label, and KEY- removes one.
func ParseChange(args []string) (Change, error) {
	var c Change
	var pairs []string
	for _, a := range args {
		k, removed := strings.CutSuffix(a, "-")
		switch {
		case strings.Contains(a, "="):
			pairs = append(pairs, a)
		case removed:
			c.Remove = append(c.Remove, k)
		default:
			return Change{}, fmt.Errorf("label %q: want KEY=VALUE to set it, or KEY- to remove it", ellipsis.Clip(a, shown))
		}
	}
	var err error
	if c.Set, err = Parse(pairs); err != nil {
		return Change{}, err
	}
	return c, c.Check()
}

// Format returns the labels as KEY=VALUE, separated by commas, in alphabetical order.
func Format(set map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k+"="+set[k])
	}
	return strings.Join(out, ",")
}
