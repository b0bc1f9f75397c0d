package contract

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// parityFile lists the accepted differences between the SDKs.
const parityFile = "../../sdk/parity.yaml"

// member is a member of a class, as the scripts surface.py and surface.mjs print it.
type member struct {
	// Kind is method, property or function.
	Kind string `json:"kind"`
	// Options are the names of a method's parameters, and of the fields of an options object.
	Options []string `json:"options"`
	// Open is set if the method takes further options by the API's names.
	Open bool `json:"open"`
}

// surface is the members of an SDK's public classes. The functions of the package are in forkd.
type surface map[string]map[string]member

// accepted is a row of the list of differences.
type accepted struct {
	// Python and TypeScript are names that only this SDK has: a class, Class.member, or
	// Class.member(option). A name can begin or end with an asterisk.
	Python     []string `yaml:"python"`
	TypeScript []string `yaml:"typescript"`
	// Kind are members that are a method in one SDK and a property in the other.
	Kind []string `yaml:"kind"`
	// Instead are the members of the other SDK for the same purpose.
	Instead []string `yaml:"instead"`
	// Why is the reason.
	Why string `yaml:"why"`
}

// Sides of a difference.
const (
	onlyPython     = "only in Python"
	onlyTypeScript = "only in TypeScript"
	otherKind      = "of another kind"
)

// difference is a name that the SDKs do not share.
type difference struct{ side, name string }

func (d difference) String() string { return d.name + " is " + d.side }

func loadAccepted(path string) ([]accepted, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rows []accepted
	if err := yaml.UnmarshalWithOptions(b, &rows, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

// unexplained returns a sentence for each difference that is not accepted, for each accepted one
// that does not exist, and for each row without a reason.
func unexplained(found []difference, rows []accepted, python, typescript surface) []string {
	var out []string
	left := slices.Clone(found)
	for _, row := range rows {
		if strings.TrimSpace(row.Why) == "" {
			out = append(out, fmt.Sprintf("a row has no reason: %v%v%v", row.Python, row.TypeScript, row.Kind))
		}
		for _, want := range row.differences() {
			before := len(left)
			left = slices.DeleteFunc(left, func(d difference) bool { return want.side == d.side && covers(want.name, d.name) })
			if len(left) == before {
				out = append(out, fmt.Sprintf("no longer true, remove it from the list: %s", want))
			}
		}
		for _, name := range row.Instead {
			if !python.camel().has(name) && !typescript.has(name) {
				out = append(out, fmt.Sprintf("%s, which stands in for %v%v, does not exist", name, row.Python, row.TypeScript))
			}
		}
	}
	for _, d := range left {
		out = append(out, d.String())
	}
	return out
}

func (a accepted) differences() []difference {
	var out []difference
	for _, n := range a.Python {
		out = append(out, difference{onlyPython, n})
	}
	for _, n := range a.TypeScript {
		out = append(out, difference{onlyTypeScript, n})
	}
	for _, n := range a.Kind {
		out = append(out, difference{otherKind, n})
	}
	return out
}

// covers reports whether a name of the list stands for a difference.
func covers(listed, name string) bool {
	if prefix, ok := strings.CutSuffix(listed, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	if suffix, ok := strings.CutPrefix(listed, "*"); ok {
		return strings.HasSuffix(name, suffix)
	}
	return listed == name
}

// compare returns the differences between the SDKs, in TypeScript's names.
func compare(python, typescript surface) []difference {
	python = python.camel()
	var out []difference
	for _, class := range keys(python, typescript) {
		p, inPython := python[class]
		t, inTypeScript := typescript[class]
		if !inPython || !inTypeScript {
			out = append(out, oneSided(class, inPython))
			continue
		}
		for _, name := range keys(p, t) {
			if name == "constructor" && class != "Forkd" && class != "Controller" {
				continue // users make no others
			}
			full := class + "." + name
			a, inPython := p[name]
			b, inTypeScript := t[name]
			switch {
			case !inPython || !inTypeScript:
				out = append(out, oneSided(full, inPython))
			case a.Kind != b.Kind:
				out = append(out, difference{otherKind, full})
			default:
				out = append(out, compareOptions(full, a, b)...)
			}
		}
	}
	return out
}

func compareOptions(of string, python, typescript member) []difference {
	p, t := withoutUnits(python.Options), withoutUnits(typescript.Options)
	var out []difference
	for _, o := range keys(p, t) {
		switch {
		case !t[o]:
			out = append(out, difference{onlyPython, of + "(" + o + ")"})
		case !p[o] && !python.Open:
			out = append(out, difference{onlyTypeScript, of + "(" + o + ")"})
		}
	}
	return out
}

func oneSided(name string, inPython bool) difference {
	if inPython {
		return difference{onlyPython, name}
	}
	return difference{onlyTypeScript, name}
}

// units are the suffixes of times. TypeScript has them in its names, Python's times are seconds.
var units = regexp.MustCompile(`(Secs|Ms)$`)

func withoutUnits(names []string) map[string]bool {
	out := map[string]bool{}
	for _, n := range names {
		out[units.ReplaceAllString(n, "")] = true
	}
	return out
}

// camel returns a surface of Python in TypeScript's names.
func (s surface) camel() surface {
	out := surface{}
	for class, members := range s {
		out[class] = map[string]member{}
		for name, m := range members {
			options := make([]string, len(m.Options))
			for i, o := range m.Options {
				options[i] = camelCase(o)
			}
			m.Options = options
			out[class][camelCase(name)] = m
		}
	}
	return out
}

// has reports whether the surface has a class or a Class.member.
func (s surface) has(name string) bool {
	class, member, ok := strings.Cut(name, ".")
	_, found := s[class][member]
	return found || !ok && s[class] != nil
}

var snakeWord = regexp.MustCompile(`_[a-z0-9]`)

// camelCase returns a name of Python in TypeScript's form. Names like import_ avoid a keyword.
func camelCase(name string) string {
	upper := func(s string) string { return strings.ToUpper(s[1:]) }
	return snakeWord.ReplaceAllStringFunc(strings.TrimRight(name, "_"), upper)
}

func keys[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
