package templates

import (
	"strings"
	"testing"
)

func TestTagsOfTemplates(t *testing.T) {
	for name, want := range map[string]string{
		"base": "base", "code-interpreter-v1": "code-interpreter-v1", "e2bdev/base": "base", "e2bdev/base:default": "base",
		"py": "py", "py:v2": "py--v2", "local/py:v2": "py--v2", "py:default": "py",
		"": "", "a/b/c": "", "a b": "", "a:": "", ":a": "", "/a": "", "a/": "", "a:b:c": "", "../x": "", "a\nb": "",
		strings.Repeat("a", 65): "", strings.Repeat("a", 60) + ":" + strings.Repeat("b", 10): "",
	} {
		got, err := Tag(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q became %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestASnapshotIsFoundByItsID(t *testing.T) {
	for _, tag := range []string{"base", "py--v2", "a--b--c", "--", "x--", "e2b-0a1b", "---"} {
		if got, err := Tag(SnapshotID(tag)); err != nil || got != tag {
			t.Errorf("%s is %s, which is %q, %v", tag, SnapshotID(tag), got, err)
		}
	}
	for _, asked := range []string{"py", "local/py", "py:v2", "local/py:v2"} {
		if !Matches("py--v2", asked) {
			t.Errorf("%s is not found", asked)
		}
	}
	for _, asked := range []string{"p", "py:v1", "other", "", "a:b:c"} {
		if Matches("py--v2", asked) {
			t.Errorf("%s is found", asked)
		}
	}
}

func FuzzTag(f *testing.F) {
	for _, s := range []string{"base", "ns/n:default", "a--b:c", "--:-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		tag, err := Tag(name)
		if err != nil {
			return
		}
		if !part.MatchString(tag) {
			t.Errorf("%q became %q", name, tag)
		}
		Matches(tag, name)
		SnapshotID(tag)
	})
}
