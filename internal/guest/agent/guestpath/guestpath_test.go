package guestpath

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	for _, tc := range []struct{ name, path, workdir, want string }{
		{"absolute is itself", "/a/../b", "", "/b"},
		{"relative is below home, whatever the workdir", "a", "/w", "/home/u/a"},
		{"empty is the workdir", "", "/w", "/w"},
		{"a relative workdir is below home", "", "w", "/home/u/w"},
		{"empty without workdir is home", "", "", "/home/u"},
		{"tilde is home", "~", "/w", "/home/u"},
		{"tilde with a path", "~/x", "", "/home/u/x"},
		{"dots stay below the root", "../../../../x", "", "/x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := Resolve(tc.path, "/home/u", tc.workdir); err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	for _, bad := range []string{"~other", "~other/x", "a\x00b", strings.Repeat("a", 5000)} {
		if got, err := Resolve(bad, "/home/u", ""); err == nil {
			t.Errorf("%.20q became %q", bad, got)
		}
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("~/x", "/home/u", "")
	f.Add("", "", "w")
	f.Add("../..", "home", "/")
	f.Fuzz(func(t *testing.T, path, home, workdir string) {
		got, err := Resolve(path, home, workdir)
		if err == nil && (!filepath.IsAbs(got) || filepath.Clean(got) != got) {
			t.Errorf("Resolve(%q, %q, %q) = %q", path, home, workdir, got)
		}
	})
}
