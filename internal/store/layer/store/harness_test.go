package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/store/layer"
)

// TestMain also runs the child that kills itself (crash_test.go), and checks for descriptors that tests left
// open.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		os.Exit(crashChild(dir))
	}
	before := openFiles()
	code := m.Run()
	if after := openFiles(); code == 0 && after > before {
		fmt.Fprintf(os.Stderr, "%d descriptors were open before the tests, %d are now\n", before, after)
		code = 1
	}
	os.Exit(code)
}

func openFiles() int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	n := 0
	for _, fd := range fds {
		// Ignore the runtime's own descriptors, which are opened on demand.
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && filepath.IsAbs(to) && to != "/dev/null" && filepath.Dir(to) != "/proc/self" {
			n++
		}
	}
	return n
}

const block = layer.BlockSize

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{})
	must(t, err)
	return s
}

func spec(parent layer.ID) layer.Spec {
	return layer.Spec{Parent: parent, Kind: layer.Disk, Size: 256 * block}
}

// draft returns a draft with the byte b in blocks 10 to 99.
func draft(s *Store, parent layer.ID, b byte) (*Draft, error) {
	d, err := s.Create(spec(parent), DraftOptions{Bytes: 90 * block})
	if err != nil {
		return nil, err
	}
	if err := d.Data(10*block, bytes.Repeat([]byte{b}, 90*block)); err != nil {
		d.Discard()
		return nil, err
	}
	return d, nil
}

// write writes a layer and, if hashed, its digests.
func write(s *Store, parent layer.ID, b byte, hashed bool) (*Handle, error) {
	d, err := draft(s, parent, b)
	if err != nil {
		return nil, err
	}
	h, err := d.Commit()
	if err != nil || !hashed {
		return h, err
	}
	if err := s.Hash(context.Background(), h.ID, nil); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func mustWrite(t testing.TB, s *Store, parent layer.ID, b byte, hashed bool) *Handle {
	t.Helper()
	h, err := write(s, parent, b, hashed)
	must(t, err)
	t.Cleanup(func() { h.Close() })
	return h
}

// files returns the paths of the store's files, except the lock.
func files(t testing.TB, s *Store) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.folder.dir, "*", "*"))
	must(t, err)
	for i := range found {
		found[i], err = filepath.Rel(s.folder.dir, found[i])
		must(t, err)
	}
	return found
}

func listed(t testing.TB, s *Store) []layer.ID {
	t.Helper()
	all, err := s.List()
	must(t, err)
	ids := []layer.ID{}
	for _, e := range all {
		if e.Err != nil {
			t.Errorf("layer %s is listed as damaged: %v", e.ID, e.Err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

func sorted(ids ...layer.ID) []layer.ID {
	slices.SortFunc(ids, func(a, b layer.ID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// hook installs a failpoint function for this package's steps during one test.
func hook(t testing.TB, f func(step string) error) {
	t.Cleanup(failpoint.Set(func(s failpoint.Step) error {
		return f(strings.TrimPrefix(string(s), failpoint.LayerPrefix))
	}))
}
