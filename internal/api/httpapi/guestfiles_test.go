package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/listen"
	"github.com/forkd/forkd/internal/api/routes/snapshots"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// reader is an engine that reads the files to boot after their paths were replaced. It then fails.
type reader struct {
	fakeengine.Flat
	before func()
	got    [2]string
}

func (r *reader) CreateSnapshot(_ context.Context, req sandbox.CreateRequest, _ func(sandbox.Step)) (sandbox.SnapshotInfo, error) {
	if r.before != nil {
		r.before()
	}
	for i, path := range []string{req.Kernel, req.Rootfs} {
		b, err := os.ReadFile(path)
		if err != nil {
			return sandbox.SnapshotInfo{}, err
		}
		r.got[i] = string(b)
	}
	return sandbox.SnapshotInfo{}, fmt.Errorf("boot %s: %w", req.Kernel, sandbox.ErrBootFailed)
}

// guestFolder has a kernel, a root, and links out of the folder.
func guestFolder(t *testing.T) (dir, secret string) {
	t.Helper()
	dir, secret = t.TempDir(), filepath.Join(t.TempDir(), "secret")
	for path, text := range map[string]string{dir + "/kernel": "the kernel", dir + "/sub/root": "the root", secret: "a secret"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"out": secret, "up": "../" + filepath.Base(filepath.Dir(secret)) + "/secret", "in": "sub/root", "folder": filepath.Dir(secret)} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, secret
}

// create requests a snapshot of two paths.
func create(t *testing.T, s *httpapi.Server, kernel, rootfs string) *httptest.ResponseRecorder {
	t.Helper()
	body, err := json.Marshal(api.CreateSnapshotRequest{Tag: "x", Kernel: kernel, Rootfs: rootfs})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/v1/snapshots", strings.NewReader(string(body)))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	s.Handler(auth.Access{Token: token}).ServeHTTP(w, r)
	return w
}

func TestFilesByPath(t *testing.T) {
	dir, secret := guestFolder(t)
	allowed, err := snapshots.OpenGuestFiles([]string{t.TempDir(), dir})
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	for _, c := range []struct {
		name, kernel string
		files        *snapshots.GuestFiles
		code         api.Code
		text         string
	}{
		{"below the folder", dir + "/kernel", allowed, api.CodeBootFailed, "boot " + dir + "/kernel"},
		{"a link that stays", dir + "/in", allowed, api.CodeBootFailed, ""},
		{"no folder", dir + "/kernel", nil, api.CodeForbidden, "opens no files by path"},
		{"outside", secret, allowed, api.CodeForbidden, "outside the daemon's directories"},
		{"outside, of no such name", secret + "-not", allowed, api.CodeForbidden, "outside the daemon's directories"},
		{"the daemon's own", "/proc/self/environ", allowed, api.CodeForbidden, "outside the daemon's directories"},
		{"up and out", dir + "/../" + filepath.Base(filepath.Dir(secret)) + "/secret", allowed, api.CodeForbidden, "outside the daemon's directories"},
		{"relative, up and out", "../../secret", allowed, api.CodeForbidden, "outside the daemon's directories"},
		{"a link out", dir + "/out", allowed, api.CodeForbidden, "escapes"},
		{"a relative link out", dir + "/up", allowed, api.CodeForbidden, "escapes"},
		{"through a folder that is a link out", dir + "/folder/secret", allowed, api.CodeForbidden, "escapes"},
		{"a FIFO", dir + "/fifo", allowed, api.CodeInvalid, "is not a file"},
		{"a folder", dir + "/sub", allowed, api.CodeInvalid, "is not a file"},
		{"nothing", dir + "/nope", allowed, api.CodeInvalid, "nope is not a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			engine := &reader{Flat: newBench(t).engine}
			w := create(t, httpapi.New(httpapi.Options{Engine: fakeengine.Roles(engine), GuestFiles: c.files}), c.kernel, dir+"/sub/root")
			if e := wantError(t, w, c.code); !strings.Contains(e.Message, c.text) {
				t.Errorf("%q does not say %q", e.Message, c.text)
			}
			if strings.Contains(fmt.Sprint(engine.got), "secret") {
				t.Error("the secret was read")
			}
			if c.code == api.CodeForbidden && c.files == nil && !strings.Contains(w.Body.String(), string(api.ReasonGuestFilesOff)) {
				t.Errorf("the reason is not told: %s", w.Body)
			}
		})
	}
}

func TestFilesByPathAreThoseThatWereLookedAt(t *testing.T) {
	dir, secret := guestFolder(t)
	files, err := snapshots.OpenGuestFiles([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	engine := &reader{Flat: newBench(t).engine, before: func() {
		for _, name := range []string{"kernel", "sub/root"} {
			path := filepath.Join(dir, name)
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
			if err := os.Symlink(secret, path); err != nil {
				t.Error(err)
			}
		}
	}}
	wantError(t, create(t, httpapi.New(httpapi.Options{Engine: fakeengine.Roles(engine), GuestFiles: files}), "kernel", dir+"/sub/root"), api.CodeBootFailed)
	if engine.got != [2]string{"the kernel", "the root"} {
		t.Errorf("the engine read %q", engine.got)
	}
}

// Only forkd-bench measures the host, on that host. No client can make the daemon measure it.
func TestNoRouteMeasuresTheHost(t *testing.T) {
	b := newBench(t)
	for path, body := range map[string]string{
		"/v1/host/copy": `{"bytes":1073741824}`, "/v1/host/disk": `{"mib":4096,"random_ops":1000}`, "/v1/snapshots/py/floor": `{"n":1000}`,
	} {
		wantError(t, b.do("POST", path, body), api.CodeNotFound)
	}
	wantError(t, b.do("GET", "/v1/host", ""), api.CodeNotFound)
}

// waiting counts the open connections to a listener.
func waiting(t *testing.T, l listen.Listener) int {
	t.Helper()
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(l.URL, "tcp://"), ":")
	var n int
	if _, err := fmt.Sscan(port, &n); err != nil {
		t.Fatal(err)
	}
	at, open := fmt.Sprintf(":%04X", n), 0
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 3 && strings.HasSuffix(fields[1], at) && fields[3] == "01" {
			open++
		}
	}
	return open
}
