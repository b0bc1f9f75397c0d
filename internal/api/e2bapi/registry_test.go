package e2bapi_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// stock is a registry for tests. Its images have a digest and are made as the image base. Calls are noted.
type stock struct {
	digests map[string]string // by reference
	here    map[string]string
	calls   []string
	fails   error // of Make
}

func (s *stock) Check(_ context.Context, r build.Reference) error {
	if strings.HasPrefix(r.Ref, "closed.example/") {
		return sandbox.Errorf(sandbox.ErrForbidden, "", "not from closed.example")
	}
	return nil
}

func (s *stock) Here(_ context.Context, ref string) (string, bool) {
	name, ok := s.here[ref]
	return name, ok
}

func (s *stock) Resolve(_ context.Context, r build.Reference) (build.Pulled, error) {
	s.calls = append(s.calls, "resolve "+r.Ref+" "+r.Username+" "+r.Password)
	if r.AWS != nil {
		s.calls = append(s.calls, "with AWS "+r.AWS.AccessKeyID+" "+r.AWS.SecretAccessKey+" "+r.AWS.Region)
	}
	d, ok := s.digests[r.Ref]
	if !ok {
		return nil, errors.New("the registry has no such image")
	}
	return inStock{s, d}, nil
}

type inStock struct {
	*stock
	digest string
}

func (o inStock) Digest() string { return o.digest }

func (o inStock) Make(_ context.Context, say func(string)) (string, error) {
	o.calls = append(o.calls, "make")
	say("layers: 1 of 1 MB")
	return "base", o.fails
}

func (o inStock) Close() error {
	o.calls = append(o.calls, "close")
	return nil
}

func (s *stock) take() string {
	defer func() { s.calls = nil }()
	return strings.Join(s.calls, ", ")
}

func TestBasesFromRegistries(t *testing.T) {
	s := &stock{digests: map[string]string{"ghcr.io/a/b:1": "d1", "ghcr.io/a/c": "d1", "ubuntu:latest": "d2"},
		here: map[string]string{"python:3": "base"}}
	prepare, dir := "true", t.TempDir()
	b := builderIn(t, dir, func(c *build.Config) {
		c.Registry, c.Account = s, build.Context{User: "root", Workdir: "/"}
		c.Prepare = prepare
	})
	ran := func(want string) {
		t.Helper()
		if got := s.take(); got != want {
			t.Errorf("calls are %q, want %q", got, want)
		}
	}
	_, st := b.ready("one", map[string]any{"fromImage": "ghcr.io/a/b:1", "steps": steps{step("RUN", "pwd; id -un")}})
	ran("resolve ghcr.io/a/b:1  , make, close")
	if text := strings.Join(st.log, "\n"); !strings.Contains(text, "[base] layers: 1 of 1 MB") || !strings.Contains(text, "]: root") {
		t.Errorf("the log is %s", text)
	}
	// The same image by another name, and another template: its layer is used.
	_, st = b.ready("two", map[string]any{"fromImage": "ghcr.io/a/c", "steps": steps{step("RUN", "pwd; id -un")},
		"fromImageRegistry": map[string]string{"type": "registry", "username": "me", "password": "geheim"}})
	ran("resolve ghcr.io/a/c me geheim, close")
	if !slices.ContainsFunc(st.log, func(l string) bool { return strings.HasPrefix(l, "CACHED") }) {
		t.Errorf("the step ran again: %q", st.log)
	}
	if strings.Contains(strings.Join(st.log, "\n"), "geheim") {
		t.Error("the log has the password")
	}
	b.ready("gcp", map[string]any{"fromImage": "ghcr.io/a/b:1", "fromImageRegistry": map[string]string{"type": "gcp",
		"serviceAccountJson": "{}"}})
	ran("resolve ghcr.io/a/b:1 _json_key {}, close")
	// With AWS's keys, also where an image of the reference is here.
	s.here["ghcr.io/a/b:1"] = "base"
	for range 2 {
		_, st = b.ready("aws", map[string]any{"fromImage": "ghcr.io/a/b:1", "fromImageRegistry": map[string]string{"type": "aws",
			"awsAccessKeyId": "id", "awsSecretAccessKey": "geheim", "awsRegion": "eu-west-1"}})
		ran("resolve ghcr.io/a/b:1  , with AWS id geheim eu-west-1, close")
		if strings.Contains(strings.Join(st.log, "\n"), "geheim") {
			t.Error("the log has the secret key")
		}
	}
	delete(s.here, "ghcr.io/a/b:1")
	// An image of this host, and a name that is not here.
	b.ready("here", map[string]any{"fromImage": "python:3"})
	ran("")
	b.ready("hub", map[string]any{"fromImage": "ubuntu"})
	ran("resolve ubuntu:latest  , make, close")
	b.ready("plain", map[string]any{"fromImage": "base"})
	b.ready("on-template", map[string]any{"fromTemplate": "one", "steps": steps{step("RUN", "true")}})
	ran("")

	fail := func(body map[string]any, word string) {
		t.Helper()
		_, st := b.build("never", body)
		if st.Status != "error" || st.Reason.Step != "base" || !strings.Contains(st.Reason.Message, word) {
			t.Errorf("%v: %+v, want %q", body, st.Reason, word)
		}
	}
	fail(map[string]any{"fromImage": "ghcr.io/a/none"}, "no such image")
	fail(map[string]any{"fromImage": "debian"}, "no such image")
	s.digests["ghcr.io/a/d"], s.fails = "d3", errors.New("the layers are broken")
	fail(map[string]any{"fromImage": "ghcr.io/a/d"}, "the layers are broken")
	s.take()
	s.fails = nil
	b.ready("retry", map[string]any{"fromImage": "ghcr.io/a/d"})
	ran("resolve ghcr.io/a/d  , make, close")

	// The builds' records have no credential.
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "geheim") {
			t.Errorf("%s has a secret", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files, %v", files, err)
	}

	r := b.request(`{"name":"refused"}`)
	at := "/v2/templates/" + r.TemplateID + "/builds/" + r.BuildID
	wantError(t, b.do("POST", at, `{"fromImage":"closed.example/a"}`), 403, "closed.example")
	wantError(t, b.do("POST", at, `{"fromImage":"closed.example/a","fromImageRegistry":{"type":"aws"}}`), 403, "closed.example")
	wantError(t, b.do("POST", at, `{"fromImage":"x/y","fromImageRegistry":{"type":"odd"}}`), 400, "none of registry")
	if n := len(b.engine.List()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

func TestAnImageThatCannotBePrepared(t *testing.T) {
	s := &stock{digests: map[string]string{"a/b": "d1"}}
	b := builder(t, func(c *build.Config) {
		c.Registry, c.Prepare = s, "echo no adduser here >&2; exit 1"
	})
	for range 2 { // the failure is not cached
		_, st := b.build("never", map[string]any{"fromImage": "a/b", "steps": steps{step("RUN", "true")}})
		if st.Status != "error" || st.Reason.Step != "base" || !strings.Contains(st.Reason.Message, "no adduser here") {
			t.Errorf("%+v", st.Reason)
		}
	}
	if n := len(b.engine.List()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}
