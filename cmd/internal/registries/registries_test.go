package registries

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/images/ociimage"
)

const good = `registries:
  docker.io:
    mirrors: [https://mirror.example.com/hub, "http://10.0.0.5:5000"]
  registry.lan:5000:
    plain_http: true
`

func TestApply(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv(Variable, "plain.example.com,other")
	if err := os.MkdirAll(filepath.Join(dir, "forkd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "forkd", fileName), []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]struct {
		mirrors int
		plain   bool
	}{
		"nginx:1.27": {2, false}, "docker.io/library/nginx": {2, false}, "index.docker.io/a/b:1": {2, false},
		"registry.lan:5000/a:1": {0, true}, "registry.lan/a:1": {0, false}, "plain.example.com/a:1": {0, true},
	} {
		p := ociimage.Pull{Ref: ref}
		if err := Apply(&p); err != nil {
			t.Fatal(err)
		}
		if len(p.Mirrors) != want.mirrors || p.PlainHTTP != want.plain {
			t.Errorf("%s: mirrors %v, plain %v", ref, p.Mirrors, p.PlainHTTP)
		}
	}
}

func TestLoadTakesTheFirstFile(t *testing.T) {
	dir := t.TempDir()
	second := filepath.Join(dir, "second.yaml")
	if err := os.WriteFile(second, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := load([]string{filepath.Join(dir, "absent.yaml"), second})
	if err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	if all, err := load([]string{filepath.Join(dir, "absent.yaml")}); err != nil || all != nil {
		t.Errorf("%v, %v", all, err)
	}
}

func TestWrongFiles(t *testing.T) {
	for content, want := range map[string]string{
		"registries:\n  a.example:\n    mirror: [x]\n":                                   "line 3: ",
		"registries:\n  a.example/b: {}\n":                                               `registry "a.example/b": want HOST`,
		"registries:\n  word: {}\n":                                                      `registry "word": want HOST`,
		"registries:\n  a.example: {mirrors: [mirror.example]}\n":                        "registry a.example: ",
		"registries:\n  docker.io: {}\n  index.docker.io: {}\n":                          "twice",
		"registries:\n  a.example: {mirrors: [" + strings.Repeat("http://m,", 17) + "]}": "at most 16",
		"[":                            "line 1: ",
		strings.Repeat("#", maxFile+1): "more than",
	} {
		if _, err := parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", content, err, want)
		}
	}
	for _, empty := range []string{"", "# nothing\n", "registries:\n"} {
		if all, err := parse([]byte(empty)); err != nil || len(all) != 0 {
			t.Errorf("%q: %v, %v", empty, all, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("registries: {a.b: {mirrors: [http://c/d]}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := parse(b)
		if err != nil {
			return
		}
		for host, s := range all {
			if ociimage.Host(host+"/r") != host || slices.ContainsFunc(s.Mirrors, func(m string) bool { return ociimage.CheckMirror(m) != nil }) {
				t.Errorf("accepted %q: %v", host, s)
			}
		}
	})
}
