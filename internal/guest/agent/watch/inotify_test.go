package watch

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watching opens a recursive watch of a new directory.
func watching(t *testing.T) (*tree, string) {
	t.Helper()
	dir := t.TempDir()
	w, err := open(dir, options{recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w, dir
}

// until reads events until one has the given name and kind, and returns all as "KIND name".
func until(t *testing.T, w *tree, last string) (out []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		events, err := w.next(ctx)
		if err != nil {
			t.Fatalf("%v; events so far: %q", err, out)
		}
		for _, ev := range events {
			kind := strings.TrimPrefix(ev.GetType().String(), "EVENT_TYPE_")
			out = append(out, kind+" "+ev.GetName())
		}
		if slices.Contains(out, last) {
			return out
		}
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Directories renamed in a burst are reported under their new names, and each rename once.
func TestRenamesInABurst(t *testing.T) {
	w, dir := watching(t)
	do(t, os.MkdirAll(dir+"/n1/n2", 0o755))
	until(t, w, "CREATE n1/n2")
	do(t, os.Rename(dir+"/n1", dir+"/m1"))
	do(t, os.WriteFile(dir+"/m1/n2/late", []byte("z"), 0o644))
	do(t, os.RemoveAll(dir+"/m1")) // before any event was handled
	got := until(t, w, "REMOVE m1")
	if !slices.Contains(got, "CREATE m1/n2/late") || !slices.Contains(got, "REMOVE m1/n2/late") {
		t.Errorf("the file in the renamed directory is not reported: %q", got)
	}
	renames := 0
	for i, ev := range got {
		if ev == "RENAME n1" {
			renames++
		}
		if i > slices.Index(got, "RENAME n1") && strings.Contains(ev, " n1") {
			t.Errorf("%q comes after the rename: %q", ev, got)
		}
	}
	if renames != 1 {
		t.Errorf("%d events of one rename: %q", renames, got)
	}
	do(t, os.WriteFile(dir+"/last", nil, 0o644))
	until(t, w, "CREATE last")
	if len(w.in.watches.paths) != 1 || len(w.in.watches.wds) != 1 {
		t.Errorf("what is gone is still known: %v", w.in.watches.wds)
	}
}

// A directory that is moved away is no longer watched, and one that is moved in is.
func TestDirectoriesThatComeAndGo(t *testing.T) {
	w, dir := watching(t)
	elsewhere := t.TempDir()
	do(t, os.MkdirAll(dir+"/a/b", 0o755))
	until(t, w, "CREATE a/b")
	do(t, os.Rename(dir+"/a", elsewhere+"/a"))
	until(t, w, "RENAME a")
	do(t, os.WriteFile(elsewhere+"/a/b/f", nil, 0o644))
	do(t, os.WriteFile(dir+"/g", nil, 0o644))
	if got := until(t, w, "CREATE g"); len(got) != 1 {
		t.Errorf("of what has left: %q", got)
	}
	do(t, os.Rename(elsewhere+"/a", dir+"/c"))
	if got := until(t, w, "CREATE c/b/f"); !slices.Contains(got, "CREATE c") || !slices.Contains(got, "CREATE c/b") {
		t.Errorf("of what has come: %q", got)
	}
	do(t, os.WriteFile(dir+"/c/b/h", nil, 0o644))
	until(t, w, "CREATE c/b/h")
}

func TestTheEndOfTheRoot(t *testing.T) {
	w, dir := watching(t)
	do(t, os.Remove(dir))
	until(t, w, "REMOVE ")
	w.close()
	w.close()
	if _, err := w.next(t.Context()); err == nil {
		t.Error("a closed watch has events")
	}
}

// record returns a struct inotify_event.
func record(c change) []byte {
	name := append([]byte(c.name), 0)
	var b bytes.Buffer
	for _, v := range []any{c.wd, c.mask, c.cookie, uint32(len(name)), name} {
		_ = binary.Write(&b, binary.LittleEndian, v)
	}
	return b.Bytes()
}

func FuzzChanges(f *testing.F) {
	var seed []byte
	for _, c := range []change{
		{1, unix.IN_MOVED_FROM | unix.IN_ISDIR, 7, "a"}, {1, unix.IN_MOVED_TO | unix.IN_ISDIR, 7, "b"}, {2, unix.IN_IGNORED, 0, ""},
	} {
		seed = append(seed, record(c)...)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		i := &inotify{f: os.NewFile(^uintptr(0), "none"), watches: newWatches()}
		i.watches.set(1, "/r")
		i.watches.set(2, "/r/a")
		for _, c := range parseChanges(b) {
			if path, ok := i.resolve(c); ok && !strings.HasPrefix(filepath.Clean(path), "/") {
				t.Errorf("%q of %+v", path, c)
			}
		}
		if len(i.watches.paths) > 2 || len(i.watches.wds) > len(i.watches.paths) {
			t.Errorf("%v, %v", i.watches.paths, i.watches.wds)
		}
	})
}
