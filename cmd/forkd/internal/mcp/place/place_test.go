package place

import (
	"path"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for uri, want := range map[string]Place{
		"forkd://tree":                                   {Kind: Tree},
		"forkd://sandbox/sb-1/file/etc/hosts":            {Kind: File, Sandbox: "sb-1", Path: "/etc/hosts"},
		"forkd://sandbox/sb-1/file/":                     {Kind: File, Sandbox: "sb-1", Path: "/"},
		"forkd://sandbox/sb-1/file/a%20b%3Fc%2541":       {Kind: File, Sandbox: "sb-1", Path: "/a b?c%41"},
		"forkd://sandbox/sb-1/file/../../etc/passwd":     {Kind: File, Sandbox: "sb-1", Path: "/etc/passwd"},
		"forkd://sandbox/sb-1/file/a?offset=-7&limit=3":  {Kind: File, Sandbox: "sb-1", Path: "/a", Offset: -7, Limit: 3},
		"forkd://sandbox/sb-1/log":                       {Kind: Log, Sandbox: "sb-1"},
		"forkd://sandbox/sb-1/network-log?limit=9":       {Kind: NetworkLog, Sandbox: "sb-1", Limit: 9},
		"forkd://output/3/stderr":                        {Kind: Output, Number: 3, Stream: "stderr"},
		"forkd://sandbox/sb-1/file/gr%C3%B6%C3%9Fe/%2F/": {Kind: File, Sandbox: "sb-1", Path: "/größe"},
	} {
		if got, err := Parse(uri); err != nil || got != want {
			t.Errorf("%s is %+v, %v, want %+v", uri, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, uri := range []string{
		"", "file:///etc/passwd", "forkd:tree", "forkd://user@tree", "forkd://tree/x", "forkd://tree#x", "forkd://",
		"forkd://sandbox/sb-1", "forkd://sandbox/sb-1/file", "forkd://sandbox//file/x", "forkd://sandbox/sb%2F1/file/x",
		"forkd://sandbox/../log", "forkd://sandbox/sb-1/log/x", "forkd://sandbox/sb-1/file/a%00b", "forkd://sandbox/sb-1/file/%ff",
		"forkd://output/0/stdout", "forkd://output/01/stdout", "forkd://output/1/x", "forkd://output/1",
		"forkd://tree?limit=0", "forkd://tree?limit=x", "forkd://tree?offset=1&offset=2", "forkd://tree?x=1",
		"forkd://sandbox/" + strings.Repeat("a", 65) + "/log", "forkd://tree?x=" + strings.Repeat("a", maxURI),
	} {
		if got, err := Parse(uri); err == nil {
			t.Errorf("%.80s is %+v, want an error", uri, got)
		}
	}
}

// FuzzParse: what is parsed is written as it was meant, and no path leaves the root.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"forkd://tree", "forkd://sandbox/a/file/x%20y?offset=1&limit=2", "forkd://output/1/stdout",
		"forkd://sandbox/a/log", "forkd://sandbox/a/file/..%2f..%2fx", "FORKD://TREE"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		p, err := Parse(uri)
		if err != nil {
			return
		}
		if p.Kind == File && (!path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path) {
			t.Errorf("%q has the path %q", uri, p.Path)
		}
		if again, err := Parse(p.String()); err != nil || again != p {
			t.Errorf("%q is %+v, written as %q: %+v, %v", uri, p, p.String(), again, err)
		}
	})
}
