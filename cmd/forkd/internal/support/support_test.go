package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	unknownToken = "9a9a0bb0a7f04f1c0bb0a7f04f1c0bb0a7f04f1c0bb0a7f04f1c0bb0a7f09a9a"
	sha256       = "77770bb0a7f04f1c0bb0a7f04f1c0bb0a7f04f1c0bb0a7f04f1c0bb0a7f07777"
)

func TestTextsWithoutSecrets(t *testing.T) {
	r := &Redactor{}
	r.Learn("hunter22", "hunter22-longer", "with \"quote\" and space", "abc", "")
	for name, row := range map[string]struct{ in, want string }{
		"a known value":            {"x hunter22 y", "x [removed] y"},
		"a longer one":             {"xhunter22-longery", "x[removed]y"},
		"a known value, quoted":    {`s="with \"quote\" and space"`, `s="[removed]"`},
		"a known value, in a URL":  {"?q=with+%22quote%22+and+space", "?q=[removed]"},
		"a known value, in base64": {base64.StdEncoding.EncodeToString([]byte("hunter22")), "[removed]"},
		"a short value":            {"abc", "abc"},
		"a bearer":                 {"sent Bearer abcdefgh.ij-k more", "sent Bearer [removed] more"},
		"a header":                 {"Authorization: Basic dXNlcjpwYXNz\nnext", "Authorization: [removed]\nnext"},
		"a header in JSON":         {`{"X-API-KEY": "abc", "x": 1}`, `{"X-API-KEY": [removed], "x": 1}`},
		"a cookie":                 {"Cookie: a=b; c=d", "Cookie: [removed]"},
		"a key":                    {"key e2b_0123456789abcdef0123456789abcdef01234567.", "key [removed]."},
		"a part of a key":          {"e2b_0123456789", "[removed]"},
		"a token":                  {"got " + unknownToken, "got [removed]"},
		"a digest":                 {"sha256:" + sha256 + " digest=" + sha256, "sha256:" + sha256 + " digest=" + sha256},
		"a digest in JSON":         {`"content_hash": "` + sha256 + `"`, `"content_hash": "` + sha256 + `"`},
		"a proxy":                  {"socks5://user:pa/ss@proxy:1080", "socks5://[removed]@proxy:1080"},
		"a user in a URL":          {"https://ghp@host/a", "https://[removed]@host/a"},
		"a proxy without scheme":   {"proxy user:secret@host:80 x", "proxy [removed]@host:80 x"},
		"an image":                 {"docker.io/a:1@sha256:12", "docker.io/a:1@sha256:12"},
		"a flag":                   {"serve --token abc --token-file /etc/t", "serve --token [removed] --token-file /etc/t"},
		"a flag with =":            {"--token=abc", "--token=[removed]"},
		"a flag in JSON":           {"\"--token\",\n  \"abc\"", "\"--token\",\n  \"[removed]\""},
		"a variable":               {"MY_PASSWORD=abc next", "MY_PASSWORD=[removed] next"},
		"a quoted value":           {`password: "a b c" next`, "password: [removed] next"},
		"an escaped value":         {`msg="x \"api_key\": \"abc\" y"`, `msg="x \"api_key\": [removed] y"`},
		"a signed URL":             {"GET /files?path=/a&signature=v1_abc&x=1", "GET /files?path=/a&signature=[removed]&x=1"},
		"a file of a token":        {"token_file=/etc/forkd/token", "token_file=/etc/forkd/token"},
		"a reason":                 {"reason=token_unwanted", "reason=token_unwanted"},
		"a variable with a key":    {"export MY_KEY=abc x", "export MY_KEY=[removed] x"},
		"a sentence":               {`the password is "a b" x`, `the password is [removed] x`},
		"an environment":           {"env=map[A:b C:d] x", "env=[removed] x"},
		"arguments":                {`args="[sh -c x]" y`, "args=[removed] y"},
		"a private key":            {"a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nb", "a\n[removed]\nb"},
		"a private key, cut":       {"a\n-----BEGIN PRIVATE KEY-----\nabc", "a\n[removed]"},
		"the end of a private key": {"YWJj\nYWJj\n-----END PRIVATE KEY-----\nb", "[removed]\nb"},
		"keys of others":           {"ghp_abcdefghijklmnop sk-abcdefghijklmnop AKIAABCDEFGHIJKLMNOP", "[removed] [removed] [removed]"},
		"a key of secrets": {"forkd-secrets-key-1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
			"forkd-secrets-key-1:[removed]"},
		"a file of a secret":           {`"name": "TOKEN", "sealed": "AAECAwQF"`, `"name": "TOKEN", "sealed": "AAECAwQF"`},
		"a JWT":                        {"eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "[removed]"},
		"output of a program":          {`level=WARN err="sh: exit code 1\nmine\nyours" x=1`, `level=WARN err="sh: exit code 1 [removed]" x=1`},
		"an error of a warm-up":        {"python code of step 2: NameError: mine", "python code of step 2: [removed]"},
		"a metric":                     {"forkd_tokens_total 3", "forkd_tokens_total 3"},
		"an ordinary line":             {"level=INFO msg=listening url=unix:///run/forkd/forkd.sock", "level=INFO msg=listening url=unix:///run/forkd/forkd.sock"},
		"bytes that are not a text":    {"a\xffb", "a?b"},
		"a request ID, a sandbox's ID": {"request=6d5fd0b7fa0a7ffd sb-1a2b-0001", "request=6d5fd0b7fa0a7ffd sb-1a2b-0001"},
	} {
		if got := r.Text(row.in); got != row.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, row.want)
		}
	}
}

// A secret of one file's field is removed from all files.
func TestFieldsWithoutSecrets(t *testing.T) {
	r := &Redactor{}
	files, failures := r.files([]file{
		{name: "log", kind: logText, text: "traffic-secret-1 and env-secret-1\n" +
			`{"level":"INFO","args":["mine"],"error":"a\nmine"}` + "\n{no json\n"},
		{name: "journal", kind: jsonText, text: `{"Info": {"TrafficToken": "traffic-secret-1", "ID": "sb-1", "Private": true},
			"who": {"env": {"MY_TOKEN": "env-secret-1", "HOME": "/mine"}, "fork_token": "mine"}, "token_file": "/etc/t",
			"Upstream": "mine", "n": 12345678901234567890, "warning": "first\nmine"}`},
		{name: "config", kind: yamlText, text: "# mine\nlisten: [a]\nproxy-password: mine\nnested:\n  - api-key: |\n      mine\n    env: {A: mine}\n"},
		{name: "bad.json", kind: jsonText, text: `{"token": "mine"`},
		{name: "bad.yaml", kind: yamlText, text: "mine"},
	})
	all := fmt.Sprint(files)
	for _, secret := range []string{"mine", "traffic-secret-1", "env-secret-1"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s is in\n%s", secret, all)
		}
	}
	for _, kept := range []string{"sb-1", "/etc/t", "12345678901234567890", "listen", `"Private": true`, "first [removed]", "{no json"} {
		if !strings.Contains(all, kept) {
			t.Errorf("%s is not in\n%s", kept, all)
		}
	}
	if len(failures) != 2 || strings.Contains(fmt.Sprint(failures), "mine") {
		t.Errorf("failures: %q", failures)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	line := strings.Repeat("x", 99) + "\n"
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	long := write("long.log", strings.Repeat(line, (FileBytes+3*slack)/len(line))+"last\n")
	r := &Redactor{}
	r.Learn("a-known-secret")
	released := make(chan struct{})
	defer close(released)
	var out bytes.Buffer
	m, err := Write(t.Context(), &out, Options{Redactor: r, Version: "1.2", Now: time.Unix(1e9, 0), PartTime: 300 * time.Millisecond,
		Parts: []Part{
			{"works", func(_ context.Context, to *Sink) error {
				to.Text("a.txt", "a-known-secret\n")
				return to.JSON("b.json", map[string]string{"password": "p", "tag": "<t>"})
			}},
			{"long", func(_ context.Context, to *Sink) error { return to.LogFile("long.log", Path(long)) }},
			{"large", func(_ context.Context, to *Sink) error { return to.JSONFile("x.json", Path(long)) }},
			{"fails", func(context.Context, *Sink) error { return errors.New("no a-known-secret") }},
			{"hangs", func(_ context.Context, to *Sink) error {
				to.Text("early.txt", "early")
				<-released
				to.Text("late.txt", "late")
				return nil
			}},
			{"missing", func(_ context.Context, to *Sink) error { return to.LogFile("no.log", Path(filepath.Join(dir, "no"))) }},
			{"directory", func(_ context.Context, to *Sink) error { return to.LogFile("dir.log", Path(dir)) }},
		}})
	if err != nil {
		t.Fatal(err)
	}
	got := unpack(t, out.Bytes())
	if got["a.txt"] != "[removed]\n" || got["early.txt"] != "early" || got["late.txt"] != "" ||
		!strings.Contains(got["b.json"], `"<t>"`) || strings.Contains(got["b.json"], `"p"`) {
		t.Errorf("got %q", got)
	}
	if text := got["long.log"]; len(text) > FileBytes || !strings.HasSuffix(text, "\nlast\n") || !strings.HasPrefix(text, line) {
		t.Errorf("the log has %d bytes", len(text))
	}
	for _, want := range []string{"fails: no [removed]\n", "hangs: stopped after 300ms\n", "missing: ", "x.json", "directory: "} {
		if want != "x.json" && !strings.Contains(got["errors.txt"], want) {
			t.Errorf("errors.txt lacks %q:\n%s", want, got["errors.txt"])
		}
	}
	if !strings.Contains(got["errors.txt"], "large: larger than") || len(m.Errors) != 5 {
		t.Errorf("errors: %q", m.Errors)
	}
	for _, want := range []string{`"file_bytes": 4194304`, `"total_bytes": 67108864`, `"truncated": true`, `"1.2"`} {
		if !strings.Contains(got["manifest.json"], want) {
			t.Errorf("the manifest lacks %s:\n%s", want, got["manifest.json"])
		}
	}
}

func TestWriteIsBounded(t *testing.T) {
	text := strings.Repeat(strings.Repeat("y", 1023)+"\n", FileBytes/1024+1)
	var out bytes.Buffer
	m, err := Write(t.Context(), &out, Options{Redactor: &Redactor{}, PartTime: time.Minute, Parts: []Part{{"many", func(_ context.Context, to *Sink) error {
		for i := range 20 {
			to.add(file{name: fmt.Sprint(i), text: text})
		}
		return nil
	}}}})
	total := 0
	for _, f := range m.Files {
		total += f.Bytes
	}
	if err != nil || total > TotalBytes || len(m.Errors) == 0 || len(m.Files) < 10 {
		t.Errorf("%d bytes in %d files, errors %q, %v", total, len(m.Files), m.Errors, err)
	}
}

func TestWriteEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, io.Discard, Options{Redactor: &Redactor{}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Links and pipes in the daemon's directory are not read.
func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "outside"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := filepath.Join(dir, "in")
	if err := os.Mkdir(in, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../outside", filepath.Join(in, "link")); err != nil {
		t.Skip(err)
	}
	root, err := os.OpenRoot(in)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := new(Sink).JSONFile("x", In(root, "link")); err == nil {
		t.Error("a link was read")
	}
}

// unpack returns the files of a bundle, without its folder.
func unpack(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, name, ok := strings.Cut(path.Clean(h.Name), "/")
		if !ok || h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		files[name] = string(text)
	}
}
