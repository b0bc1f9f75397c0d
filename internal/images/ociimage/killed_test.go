package ociimage

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/forkd/forkd/internal/images/image"
)

// killedVariable holds the reference that this test binary pulls as a child process.
const killedVariable = "FORKD_TEST_PULL"

func TestMain(m *testing.M) {
	if ref := os.Getenv(killedVariable); ref != "" {
		work := pullOnce
		if os.Getenv(fullVariable) != "" {
			work = pullFull
		}
		if err := work(context.Background(), ref, os.Getenv("FORKD_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pullOnce downloads an image and writes its root, like a pull without the kernel.
func pullOnce(ctx context.Context, ref, dir string) error { return pullSeen(ctx, ref, dir, func() {}) }

// pullSeen calls seen at each report of progress.
func pullSeen(ctx context.Context, ref, dir string, seen func()) error {
	cache, err := OpenCache(filepath.Join(dir, "blobs"))
	if err != nil {
		return err
	}
	defer cache.Close()
	img, err := Resolve(ctx, Pull{Ref: ref, Cache: cache, Wait: time.Millisecond, Keychain: authn.NewMultiKeychain()})
	if err != nil {
		return err
	}
	if err := img.Fetch(ctx, func(int64, int64) { seen() }); err != nil {
		return err
	}
	r, err := img.Merge(ctx, func(float64) { seen() })
	if err != nil {
		return err
	}
	if err := r.addGuest(image.Guest{Files: func(image.Account) ([]image.GuestFile, error) { return nil, nil }},
		image.Account{Workdir: "/"}); err != nil {
		return err
	}
	path := filepath.Join(dir, "root.erofs")
	os.Remove(path)
	return r.Write(ctx, path, "ab000000000000000000000000000000", func(float64) { seen() })
}

// A child is killed at several bytes of a download, and at several times afterwards. The cache never names a wrong
// blob, and the next pull continues.
func TestKilledPulls(t *testing.T) {
	b := newBench(t)
	layer := tarOf(t, "f="+string(big(4_000_000)))
	ref := b.push("1", imageOf(t, v1.Config{}, layer, tarOf(t, "g=2")))
	for _, cut := range []int{1, 600_000, 3_999_000} {
		t.Run(fmt.Sprint("byte ", cut), func(t *testing.T) {
			dir := t.TempDir()
			reached := make(chan struct{})
			var ranged []string
			b.lie = func(w http.ResponseWriter, r *http.Request) bool {
				data, is := b.isLayer(r)
				if !is {
					return false
				}
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				w.Write(data[:cut])
				w.(http.Flusher).Flush()
				close(reached)
				<-r.Context().Done()
				return true
			}
			child := start(t, ref, dir)
			<-reached
			awaitBytes(t, filepath.Join(dir, "blobs", "partial", digestOf(layer).Hex), int64(cut))
			kill(t, child)
			checkCache(t, dir)
			b.lie = func(_ http.ResponseWriter, r *http.Request) bool {
				if _, is := b.isLayer(r); is {
					ranged = append(ranged, r.Header.Get("Range"))
				}
				return false
			}
			if err := pullOnce(t.Context(), ref, dir); err != nil {
				t.Fatal(err)
			}
			if want := fmt.Sprintf("bytes=%d-%d", cut, len(layer)-1); len(ranged) != 1 || ranged[0] != want {
				t.Errorf("the retry asks for %q, want only %q", ranged, want)
			}
			checkCache(t, dir)
		})
	}
	b.lie = nil
	for after := time.Duration(0); after < 120*time.Millisecond; after += 15 * time.Millisecond {
		dir := t.TempDir()
		child := start(t, ref, dir)
		time.Sleep(after) // elapses: the child's time until it is killed
		kill(t, child)
		checkCache(t, dir)
		if err := pullOnce(t.Context(), ref, dir); err != nil {
			t.Errorf("killed after %s: %v", after, err)
		}
	}
}

func start(t *testing.T, ref, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), killedVariable+"="+ref, "FORKD_TEST_DIR="+dir)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func kill(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Log(err) // it has ended
	}
	_ = c.Wait()
}

func awaitBytes(t *testing.T, path string, n int64) {
	t.Helper()
	for range 1000 {
		if st, err := os.Stat(path); err == nil && st.Size() >= n {
			return
		}
		time.Sleep(5 * time.Millisecond) // elapses: time between two looks at the file, with a limit on their number
	}
	t.Fatalf("%s does not reach %d bytes", path, n)
}

// checkCache compares each named blob with its name.
func checkCache(t *testing.T, dir string) {
	t.Helper()
	all, _ := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil || digestOf(b).Hex != filepath.Base(path) {
			t.Errorf("%s has other content: %v", path, err)
		}
	}
}
