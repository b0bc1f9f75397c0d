package volume

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/overlay"
)

const size = 64 << 20

// open opens a store in dir, as a daemon does when it starts.
func open(t *testing.T, dir string) *Store {
	t.Helper()
	layers, err := store.Open(filepath.Join(dir, "layers"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Dir: filepath.Join(dir, "volumes"), Pins: layers, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, s *Store, owner, name string) Volume {
	t.Helper()
	v, err := s.Create(owner, name, size)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// disk opens a stack as a VM does. Without a writable top it can only be read.
func disk(t *testing.T, files []string, writable bool) *overlay.Disk {
	t.Helper()
	frozen := files
	var top *os.File
	if writable {
		frozen = files[:len(files)-1]
		f, err := os.OpenFile(files[len(files)-1], os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		top = f
	} else {
		f, err := os.CreateTemp(t.TempDir(), "top")
		if err != nil {
			t.Fatal(err)
		}
		top = f
	}
	base, opened, err := Base(frozen, size, []extent.Extent(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(append(opened, top)) })
	d, err := overlay.Open(top, size, base)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const at = 40 << 20 // a block that the blank file system does not use

func write(t *testing.T, files []string, text string) {
	t.Helper()
	d := disk(t, files, true)
	if _, err := d.WriteAt([]byte(text), at); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, files []string, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := disk(t, files, false).ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func take(t *testing.T, s *Store, name, by string) (Volume, Stack) {
	t.Helper()
	v, stack, err := s.Take("acme", name, by)
	if err != nil {
		t.Fatal(err)
	}
	return v, stack
}

func release(t *testing.T, s *Store, v Volume, by string) {
	t.Helper()
	if err := s.Release(v.ID, by); err != nil {
		t.Fatal(err)
	}
}

func TestContentOutlivesHoldersAndClonesAreApart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, "acme", "data")
	v, stack := take(t, s, "data", "sb-1")
	write(t, stack.Files, "first")
	if _, _, err := s.Take("acme", "data", "sb-2"); !errors.Is(err, ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	for name, err := range map[string]error{"remove": s.Remove("acme", "data"), "clone": cloneErr(s, "data", "x")} {
		if !errors.Is(err, ErrHeld) {
			t.Errorf("%s while it is held: %v", name, err)
		}
	}
	release(t, s, v, "sb-2") // not the holder
	if _, _, err := s.Take("acme", "data", "sb-2"); !errors.Is(err, ErrHeld) {
		t.Errorf("another sandbox has released it: %v", err)
	}
	release(t, s, v, "sb-1")

	if _, err := s.Clone("acme", "data", "copy", false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Clone("acme", "data", "kept", true); err != nil {
		t.Fatal(err)
	}
	v, stack = take(t, s, "data", "sb-3")
	write(t, stack.Files, "other")
	release(t, s, v, "sb-3")
	s = open(t, dir) // a daemon that was killed
	if err := s.Remove("acme", "data"); err != nil {
		t.Fatal(err)
	}
	c, stack := take(t, s, "copy", "sb-4")
	if got := read(t, stack.Files, 5); got != "first" {
		t.Errorf("the clone has %q", got)
	}
	release(t, s, c, "sb-4")
	if _, _, err := s.Take("acme", "kept", "sb-5"); !errors.Is(err, ErrInvalid) {
		t.Errorf("a snapshot can be written: %v", err)
	}
	_, shared, err := s.Share("acme", "kept")
	if err != nil || read(t, shared.Files, 5) != "first" {
		t.Errorf("the snapshot: %v", err)
	}
}

func cloneErr(s *Store, from, name string) error {
	_, err := s.Clone("acme", from, name, false)
	return err
}

func TestNamesAndLimits(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, "acme", "data")
	create(t, s, "other", "data")
	for what, row := range map[string]struct {
		err, want error
	}{
		"a taken name":       {createErr(s, "acme", "data", size), ErrExists},
		"a path":             {createErr(s, "acme", "../x", size), ErrInvalid},
		"an empty name":      {createErr(s, "acme", "", size), ErrInvalid},
		"an odd owner":       {createErr(s, "A/b", "x", size), ErrInvalid},
		"too small":          {createErr(s, "acme", "x", 1), ErrInvalid},
		"negative":           {createErr(s, "acme", "x", -1), ErrInvalid},
		"too large":          {createErr(s, "acme", "x", MaxBytes+4096), ErrInvalid},
		"another's volume":   {s.Remove("third", "data"), ErrNotFound},
		"another's, to take": {takeErr(s, "third", "data"), ErrNotFound},
	} {
		if !errors.Is(row.err, row.want) {
			t.Errorf("%s: %v, want %v", what, row.err, row.want)
		}
	}
	for i := range 4 {
		if err := createErr(s, "big", fmt.Sprintf("v%d", i), MaxBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := createErr(s, "big", "more", size); !errors.Is(err, ErrLimit) {
		t.Errorf("more than %d bytes: %v", int64(MaxOwnerBytes), err)
	}
	if list := s.List("acme"); len(list) != 1 || list[0].Name != "data" {
		t.Errorf("the list is %+v", list)
	}
}

func createErr(s *Store, owner, name string, bytes int64) error {
	_, err := s.Create(owner, name, bytes)
	return err
}

func takeErr(s *Store, owner, name string) error {
	_, _, err := s.Take(owner, name, "sb-1")
	return err
}

// A branch puts a file on top. Wherever the daemon and the VM end, the volume has the flushed content.
func TestKillsDuringABranch(t *testing.T) {
	for _, switched := range []bool{false, true} {
		dir := t.TempDir()
		s := open(t, dir)
		create(t, s, "acme", "data")
		v, stack := take(t, s, "data", "sb-1")
		write(t, stack.Files, "before")
		top, err := s.NewTop(v.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := "before"
		if switched {
			want = "behind"
			write(t, append(stack.Files, top.Name()), want)
		}
		top.Close()
		s = open(t, dir)
		s.Rest()
		v, stack = take(t, s, "data", "sb-2")
		if got := read(t, stack.Files, 6); got != want {
			t.Errorf("switched %v: %q, want %q", switched, got, want)
		}
		release(t, s, v, "sb-2")
	}
}

// A rollback replaces the stack. Until it commits, the volume keeps the old one; afterwards the journal decides.
func TestKillsDuringARollback(t *testing.T) {
	for _, committed := range []bool{false, true} {
		dir := t.TempDir()
		s := open(t, dir)
		create(t, s, "acme", "data")
		v, stack := take(t, s, "data", "sb-1")
		write(t, stack.Files, "before")
		top, err := s.NewTop(v.ID, []layer.ID{})
		if err != nil {
			t.Fatal(err)
		}
		write(t, []string{top.Name()}, "behind")
		top.Close()
		s = open(t, dir)
		want := "before"
		if committed {
			want = "behind"
			if err := s.Adopt(v.ID, "sb-1", Stack{Files: []string{top.Name()}}); err != nil {
				t.Fatal(err)
			}
			release(t, s, v, "sb-1")
		}
		s.Rest()
		_, stack = take(t, s, "data", "sb-2")
		if got := read(t, stack.Files, 6); got != want {
			t.Errorf("committed %v: %q, want %q", committed, got, want)
		}
	}
}

func TestSettleRefusesForeignFiles(t *testing.T) {
	s := open(t, t.TempDir())
	v := create(t, s, "acme", "data")
	if err := s.Settle(v.ID, Stack{Files: []string{"/etc/passwd"}}); err == nil {
		t.Error("a foreign file became a volume's")
	}
	if err := s.Settle(v.ID, Stack{}); err == nil {
		t.Error("a volume without files")
	}
}

// A volume that is cloned after each write keeps a bounded number of files.
func TestTallStacksAreMerged(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, "acme", "data")
	for i := range maxFiles + 3 {
		v, stack := take(t, s, "data", "sb-1")
		write(t, stack.Files, fmt.Sprintf("%03d", i))
		release(t, s, v, "sb-1")
		if _, _, err := s.Share("acme", "data"); err != nil {
			t.Fatal(err)
		}
	}
	_, stack := take(t, s, "data", "sb-2")
	if n := len(stack.Files); n > maxFiles {
		t.Errorf("%d files", n)
	}
	if got := read(t, stack.Files, 3); got != fmt.Sprintf("%03d", maxFiles+2) {
		t.Errorf("the merged volume has %q", got)
	}
}

// Leftovers of interrupted operations go, and a damaged record takes no other volume with it.
func TestOpenAfterACrash(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	v := create(t, s, "acme", "data")
	bad := create(t, s, "acme", "bad")
	root := filepath.Join(dir, "volumes")
	for _, name := range []string{draftPrefix + "x", deadPrefix + "x"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	stray := filepath.Join(root, v.ID, "00000099")
	for path, text := range map[string]string{stray: "", filepath.Join(root, bad.ID, recordFile): "{"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir)
	s.Rest()
	if list := s.List("acme"); len(list) != 1 || list[0].Name != "data" {
		t.Errorf("the list is %+v", list)
	}
	for _, path := range []string{stray, filepath.Join(root, draftPrefix+"x"), filepath.Join(root, deadPrefix+"x")} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", filepath.Base(path), err)
		}
	}
	if _, err := os.Lstat(filepath.Join(root, bad.ID)); err != nil {
		t.Errorf("the files of the damaged volume: %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	const id = "vol-000000000000000000000000"
	f.Add([]byte(`{"format":1,"id":"` + id + `","name":"data","bytes":67108864,"files":["00000001"],"counter":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b, id)
		if err != nil {
			return
		}
		for _, name := range r.names() {
			if filepath.Base(name) != name || !filePattern.MatchString(name) {
				t.Errorf("file %q", name)
			}
		}
	})
}

// BenchmarkClone clones a volume of 10 GiB whose stack has a written top.
func BenchmarkClone(b *testing.B) {
	dir := b.TempDir()
	layers, err := store.Open(filepath.Join(dir, "layers"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(Config{Dir: filepath.Join(dir, "volumes"), Pins: layers, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Create("acme", "data", 10<<30); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		name := fmt.Sprintf("c%d", i)
		if _, err := s.Clone("acme", "data", name, false); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Remove("acme", name); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		i++
	}
}
