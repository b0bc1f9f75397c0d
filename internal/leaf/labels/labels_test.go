package labels

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/retention"
)

func many(n, size int) map[string]string {
	set := map[string]string{}
	for i := range n {
		set[fmt.Sprintf("k%02d", i)] = strings.Repeat("v", size)
	}
	return set
}

// rules is a set of all rules of retention, in their largest form.
func rules() map[string]string {
	set := map[string]string{}
	for _, k := range []string{retention.Pin, retention.Expires, retention.Lineage, retention.KeepLast} {
		set[k] = strings.Repeat("v", MaxValue)
	}
	return set
}

func TestCheck(t *testing.T) {
	for name, row := range map[string]struct {
		set  map[string]string
		want string // part of the error; empty: it is valid
	}{
		"none":                    {nil, ""},
		"as Docker and E2B":       {map[string]string{"com.example/team": "agents", "userId": "Jörg 1"}, ""},
		"an empty value":          {map[string]string{"a": ""}, ""},
		"the longest":             {map[string]string{strings.Repeat("k", MaxKey): strings.Repeat("v", MaxValue)}, ""},
		"the most":                {many(MaxLabels, 200), ""},
		"one too many":            {many(MaxLabels+1, 1), "65 labels"},
		"too much together":       {many(MaxLabels, 300), "want at most 16384"},
		"the most, and rules":     {Merge(many(MaxLabels, 200), rules()), ""},
		"too many beside rules":   {Merge(many(MaxLabels+1, 1), rules()), "65 labels"},
		"no rule of retention":    {Merge(many(MaxLabels, 1), map[string]string{"forkd.other": ""}), "65 labels"},
		"a long value of a rule":  {map[string]string{retention.Expires: strings.Repeat("v", MaxValue+1)}, "has 513 bytes"},
		"no key":                  {map[string]string{"": "x"}, "without a key"},
		"a long key":              {map[string]string{strings.Repeat("k", MaxKey+1): ""}, "has 129 bytes"},
		"a long value":            {map[string]string{"k": strings.Repeat("v", MaxValue+1)}, "has 513 bytes"},
		"a key with =":            {map[string]string{"a=b": ""}, "printable ASCII"},
		"a key with a space":      {map[string]string{"a b": ""}, "printable ASCII"},
		"a key with a newline":    {map[string]string{"a\nb": ""}, "printable ASCII"},
		"a key with an umlaut":    {map[string]string{"ä": ""}, "printable ASCII"},
		"a key of bad UTF-8":      {map[string]string{"a\xff": ""}, "printable ASCII"},
		"a key like a removal":    {map[string]string{"a-": ""}, "dash"},
		"a key like a flag":       {map[string]string{"--all": ""}, "dash"},
		"a value with a newline":  {map[string]string{"a": "b\nc"}, "not printable"},
		"a value with an escape":  {map[string]string{"a": "\x1b[2J"}, "not printable"},
		"a value that turns text": {map[string]string{"a": "\u202etxt"}, "not printable"},
		"a value of bad UTF-8":    {map[string]string{"a": "\xc3("}, "UTF-8"},
		"bad UTF-8 out of JSON":   {map[string]string{"a": "\ufffd"}, "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(row.set)
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			if err != nil && (len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\n\x1b")) {
				t.Errorf("the error is %q", err)
			}
			if Check(Fitting(row.set)) != nil {
				t.Errorf("the fitting part does not fit: %v", Check(Fitting(row.set)))
			}
		})
	}
}

func TestApplyKeepsItsArguments(t *testing.T) {
	before := map[string]string{"a": "1", "b": "2"}
	got, err := Change{Set: map[string]string{"b": "3", "c": "4"}, Remove: []string{"a", "missing"}}.Apply(before)
	if err != nil || !maps.Equal(got, map[string]string{"b": "3", "c": "4"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if !maps.Equal(before, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("the argument is now %v", before)
	}
	if got, err := (Change{Remove: []string{"a", "b"}}).Apply(before); err != nil || got != nil {
		t.Errorf("without all of them: %v, %v", got, err)
	}
	full := many(MaxLabels, 1)
	if _, err := (Change{Set: map[string]string{"z": ""}}).Apply(full); err == nil {
		t.Error("a label beyond the limit was added")
	}
	if _, err := (Change{Set: map[string]string{retention.Pin: "true"}}).Apply(full); err != nil {
		t.Errorf("a snapshot with all labels cannot be pinned: %v", err)
	}
	if _, err := (Change{Set: map[string]string{"z": ""}, Remove: []string{"k00"}}).Apply(full); err != nil {
		t.Errorf("one for another: %v", err)
	}
	for _, bad := range []Change{{}, {Remove: []string{""}}, {Set: map[string]string{"a": ""}, Remove: []string{"a"}},
		{Remove: slices.Repeat([]string{"a"}, MaxLabels+1)}} {
		if _, err := bad.Apply(before); err == nil {
			t.Errorf("%v was applied", bad)
		}
	}
}

func TestParseChange(t *testing.T) {
	c, err := ParseChange([]string{"a=1", "b=", "c=x=y-", "d-", "e--f-"})
	if err != nil || !maps.Equal(c.Set, map[string]string{"a": "1", "b": "", "c": "x=y-"}) ||
		!slices.Equal(c.Remove, []string{"d", "e--f"}) {
		t.Errorf("got %v, %v", c, err)
	}
	for _, bad := range [][]string{nil, {"a"}, {"-"}, {"=x"}, {"a=1", "a-"}, {"a--"}, {"a=\n"}} {
		if c, err := ParseChange(bad); err == nil {
			t.Errorf("%q is %v", bad, c)
		}
	}
}

func FuzzParseChange(f *testing.F) {
	f.Add("a=1", "b-")
	f.Add("a=\x1b", "-=")
	f.Fuzz(func(t *testing.T, a, b string) {
		c, err := ParseChange([]string{a, b})
		if err != nil {
			if len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("the error is %q", err)
			}
			return
		}
		after, err := c.Apply(map[string]string{"a": "b"})
		if err != nil || Check(after) != nil {
			t.Errorf("%v gives %v, %v", c, after, err)
		}
		back, err := ParseChange(strings.Split(Format(c.Set), "\x00"))
		if len(c.Set) == 1 && (err != nil || !maps.Equal(back.Set, c.Set)) {
			t.Errorf("%v is printed as %q", c.Set, Format(c.Set))
		}
	})
}

func TestReservedLabelsAreNotInherited(t *testing.T) {
	of := map[string]string{VolumeFiles: "vol-1", "forkd.pin": "true", "job": "7"}
	got := Inherited(of)
	if len(got) != 2 || got["job"] != "7" || got["forkd.pin"] != "true" || len(of) != 3 {
		t.Errorf("got %v of %v", got, of)
	}
	if !Reserved(VolumeFiles) || Reserved("forkd.pin") || Reserved("job") {
		t.Error("the wrong labels are reserved")
	}
}
