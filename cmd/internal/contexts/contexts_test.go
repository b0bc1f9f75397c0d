package contexts

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func TestFilesThatAreRefused(t *testing.T) {
	for content, want := range map[string]string{
		"version: 1\ncolour: red\n":                                             `line 2: unknown field "colour"`,
		"version: 1\ncontexts:\n  a:\n    uri: x\n":                             `line 4: unknown field "uri"`,
		"version: 2\n":                                                          "version is 2, want 1",
		"current: a\n":                                                          "version is 0, want 1",
		"version: 1\ncurrent: a\n":                                              `context "a" does not exist`,
		"version: 1\ncontexts:\n  default:\n    host: true\n":                   "built in",
		"version: 1\ncontexts:\n  a b:\n    host: true\n":                       "context name",
		"version: 1\ncontexts:\n  a: {}\n":                                      "want one of url, machine and host",
		"version: 1\ncontexts:\n  a: {host: true, url: x}\n":                    "want one of url, machine and host",
		"version: 1\ncontexts:\n  a: {url: u, token: t, token_file: f}\n":       "exclude each other",
		"version: 1\ncontexts:\n  a: {url: 'http://x', tls_fingerprint: ab}\n":  "need a url of https",
		"version: 1\ncontexts:\n  a: {url: 'https://x', tls_client_cert: ab}\n": "go together",
		"version: [1\n":                     "line 1",
		"version: 1\n---\na: 1\n":           "one YAML document",
		"- a\n":                             "line 1",
		strings.Repeat(" ", maxFile) + "\n": "is over",
	} {
		if _, err := Parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: got %v, want %q", content, err, want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80q: the error has several lines: %q", content, err)
		}
	}
}

func TestAFileIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forkd", "config.yaml")
	want := File{Current: "b", Contexts: map[string]Context{
		"a": {URL: "https://x:1", TokenFile: "/t", Fingerprint: "00", Cert: "/c", Key: "/k", Description: "first: # \"x\""},
		"b": {Machine: "lab"}, "c": {Host: true}, "1.0": {URL: "unix:///x", Token: "0123"},
	}}
	if err := Change(path, func(f *File) error { *f = want; return nil }); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, %v, want %v", name, st.Mode(), err, mode)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestALinkToTheFileStays(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	if err := Change(link, func(f *File) error { return f.Create("a", Context{Host: true}) }); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("got %q, %v", to, err)
	}
	if f, err := Load(file); err != nil || !f.Contexts["a"].Host {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestTokensAreReadFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]string{" abc\n": "abc", "": "", "a\nb\n": ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := (Context{TokenFile: file}).ReadToken(); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", content, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("version: 1\ncurrent: a\ncontexts:\n  a:\n    url: https://x\n    token_file: /t\n"))
	f.Add([]byte("version: 1\ncontexts: {a: &x {host: true}, b: *x}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := Parse(content)
		if err != nil {
			return
		}
		again, err := got.Format()
		if err != nil {
			t.Fatal(err)
		}
		if next, err := Parse(again); err != nil || !reflect.DeepEqual(got, next) {
			t.Errorf("%q: %+v becomes %+v, %v", content, got, next, err)
		}
	})
}
