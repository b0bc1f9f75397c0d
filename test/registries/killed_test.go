package registries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/images/signed"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/signature"
)

// Variables of a child process: it pushes the layout of a folder to a reference, and signs it.
const (
	pushDirectory = "FORKD_TEST_PUSH_DIR"
	pushReference = "FORKD_TEST_PUSH_REF"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(pushDirectory); dir != "" {
		if err := pushSigned(context.Background(), dir, os.Getenv(pushReference)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pushSigned pushes DIR/layout.tar and signs it with DIR/key.
func pushSigned(ctx context.Context, dir, ref string) error {
	cache, err := ociimage.OpenCache(filepath.Join(dir, "blobs"))
	if err != nil {
		return err
	}
	defer cache.Close()
	text, err := os.ReadFile(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	key, err := signature.ParsePrivate(text, []byte(password))
	if err != nil {
		return err
	}
	layout, err := os.ReadFile(filepath.Join(dir, "layout.tar"))
	if err != nil {
		return err
	}
	repo, err := ociimage.OpenRepository(ctx, ociimage.Pull{Ref: ref, Cache: cache, Wait: time.Millisecond,
		Keychain: authn.NewMultiKeychain()})
	if err != nil {
		return err
	}
	up, err := repo.Push(ctx)
	if err != nil {
		return err
	}
	raw, _, err := hub.ReadExport(bytes.NewReader(layout), func(d hub.Descriptor, r io.Reader) error {
		b, err := io.ReadAll(r)
		return errors.Join(err, up.Blob(blob(d), func() io.Reader { return bytes.NewReader(b) }))
	})
	if err != nil {
		return err
	}
	if err := up.Manifest(raw, hub.ManifestType); err != nil {
		return err
	}
	return signed.Attach(ctx, repo, key, signature.Describe(hub.ManifestType, raw))
}

// prepared returns a folder for pushSigned, the key that verifies, and the host of the snapshot.
func prepared(t *testing.T) (dir string, verify *signature.PublicKey, h *host) {
	t.Helper()
	h = newHost(t)
	h.make("one", 1)
	dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "layout.tar"), h.layout("one"), 0o600))
	private, _, _, verify := pair(t)
	text, err := os.ReadFile(private)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "key"), text, 0o600))
	return dir, verify, h
}

// wholeOrNothing checks that a reference is absent, or names a snapshot that can be pulled.
func wholeOrNothing(t *testing.T, a *host, ref string) {
	t.Helper()
	b := newHost(t)
	if _, _, err := b.repository(ref).Manifest(t.Context()); errors.Is(err, ociimage.ErrNotFound) {
		return
	}
	must(t, b.pull(ref, "two", nil, nil))
	b.same("two", a, "one")
}

// A push is killed at each of its requests. The tag then names the whole snapshot or none, and a retry succeeds.
func TestAKilledPush(t *testing.T) {
	dir, verify, a := prepared(t)
	self, err := os.Executable()
	must(t, err)
	requests := 0
	for whole := false; !whole; requests++ {
		var child atomic.Pointer[exec.Cmd]
		var n atomic.Int64
		base := through(t, func(_ http.ResponseWriter, r *http.Request) bool {
			c := child.Load()
			if n.Add(1) <= int64(requests) || c == nil {
				return false
			}
			io.CopyN(io.Discard, r.Body, 100_000)
			c.Process.Kill()
			panic(http.ErrAbortHandler)
		})
		ref := base + "/team/app:1"
		c := exec.Command(self)
		c.Env = append(os.Environ(), pushDirectory+"="+dir, pushReference+"="+ref)
		child.Store(c)
		var out bytes.Buffer
		c.Stderr = &out
		must(t, c.Start())
		whole = c.Wait() == nil
		child.Store(nil)
		if !whole && out.Len() > 0 {
			t.Fatalf("request %d: %s", requests, out.String())
		}
		wholeOrNothing(t, a, ref)
		must(t, pushSigned(t.Context(), dir, ref))
		_, err := a.require(ref, verify)
		must(t, err)
	}
	if requests < 15 {
		t.Errorf("a push has %d requests only", requests)
	}
	t.Logf("killed at %d requests", requests-1)
}

// The registry's disk is full from each request on. The push fails with its reason, and a retry succeeds later.
func TestAFullDiskOfTheRegistry(t *testing.T) {
	dir, verify, a := prepared(t)
	for requests := int64(0); ; requests++ {
		var n atomic.Int64
		var room atomic.Bool
		base := through(t, func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet || r.Method == http.MethodHead || room.Load() || n.Add(1) <= requests {
				return false
			}
			w.WriteHeader(http.StatusInsufficientStorage)
			io.WriteString(w, `{"errors":[{"code":"UNKNOWN","message":"no space left on device"}]}`)
			return true
		})
		ref := base + "/team/app:1"
		err := pushSigned(t.Context(), dir, ref)
		if err == nil {
			if requests < 10 {
				t.Errorf("a push has %d requests that write", requests)
			}
			return
		}
		if !bytes.Contains([]byte(err.Error()), []byte("no space left")) {
			t.Errorf("request %d: %v", requests, err)
		}
		wholeOrNothing(t, a, ref)
		room.Store(true)
		must(t, pushSigned(t.Context(), dir, ref))
		_, err = a.require(ref, verify)
		must(t, err)
	}
}
