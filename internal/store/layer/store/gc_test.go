package store

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/layer"
)

// collect runs a GC after a dry run, which must have predicted the result.
func collect(t *testing.T, s *Store) Report {
	t.Helper()
	before := files(t, s)
	dry, err := s.GC(true)
	must(t, err)
	if after := files(t, s); !slices.Equal(before, after) {
		t.Fatalf("a dry run changed the store from %v to %v", before, after)
	}
	r, err := s.GC(false)
	must(t, err)
	if !slices.Equal(dry.Layers, r.Layers) || dry.Bytes != r.Bytes || dry.Temps != r.Temps {
		t.Errorf("a dry run says %+v, the real one %+v", dry, r)
	}
	return r
}

func TestALayerGoesWhenNobodyNeedsIt(t *testing.T) {
	s := open(t, t.TempDir())
	h := mustWrite(t, s, layer.ID{}, 1, true)
	second, err := s.Get(h.ID)
	must(t, err)
	stays := func(why string) {
		t.Helper()
		if r := collect(t, s); len(r.Layers) != 0 || r.Bytes != 0 {
			t.Errorf("%s: collected %+v", why, r)
		}
	}
	stays("two handles")
	must(t, h.Close())
	must(t, h.Close())
	stays("one handle")
	must(t, s.Pin("a", h.ID))
	must(t, s.Pin("b", h.ID, h.ID))
	must(t, second.Close())
	stays("two pins")
	must(t, s.Unpin("a"))
	stays("one pin")
	must(t, s.Pin("b"))
	if pins, err := s.Pins(); err != nil || len(pins) != 1 || len(pins["b"]) != 0 {
		t.Errorf("pins %v, %v", pins, err)
	}
	r := collect(t, s)
	if !slices.Equal(r.Layers, []layer.ID{h.ID}) || r.Bytes < 90*block || r.Temps != 0 {
		t.Errorf("collected %+v", r)
	}
	if got := files(t, s); !slices.Equal(got, []string{"pins/b"}) {
		t.Errorf("left over: %v", got)
	}
}

// A VM's descriptor of a layer's file does not affect the layer's users: the VM can neither end nor fake a use,
// nor lock out others. When the layer is unused, its name is removed, but the VM can still read the content.
func TestAVMsDescriptorHasNoSayInALayersUse(t *testing.T) {
	s := open(t, t.TempDir())
	h := mustWrite(t, s, layer.ID{}, 7, false)
	own, err := os.Open(s.folder.layerPath(h.ID)) // like a VM's descriptor
	must(t, err)
	for _, fd := range []int{int(h.File().Fd()), int(own.Fd())} { // the first one was once a VM's
		for _, how := range []int{unix.LOCK_UN, unix.LOCK_EX | unix.LOCK_NB, unix.LOCK_UN} {
			must(t, unix.Flock(fd, how))
		}
		unlock := unix.Flock_t{Type: unix.F_UNLCK}
		must(t, unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unlock))
		if r := collect(t, s); len(r.Layers) != 0 || r.Busy != 1 {
			t.Errorf("collected %+v", r)
		}
	}
	m, err := unix.Mmap(int(own.Fd()), block, block, unix.PROT_READ, unix.MAP_PRIVATE)
	must(t, err)
	defer unix.Munmap(m)
	must(t, unix.Flock(int(own.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	other := open(t, s.folder.dir)
	again := make(chan error, 1)
	go func() {
		g, err := other.Get(h.ID)
		if err == nil {
			err = g.Close()
		}
		again <- err
	}()
	select {
	case err := <-again:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("a VM's lock keeps others out of the layer")
	}
	must(t, unix.Flock(int(own.Fd()), unix.LOCK_UN))
	must(t, own.Close())
	must(t, h.Close())
	if r := collect(t, s); len(r.Layers) != 1 {
		t.Errorf("afterwards: collected %+v", r)
	}
	if m[0] != 7 {
		t.Errorf("mapped %d", m[0])
	}
}

func TestLeftoversGoAndLiveDraftsStay(t *testing.T) {
	s := open(t, t.TempDir())
	d, err := draft(s, layer.ID{}, 1)
	must(t, err)
	id := layer.NewID()
	must(t, os.WriteFile(s.folder.path(tempDir, id.String()), make([]byte, block), 0o600))
	must(t, os.WriteFile(s.folder.digestsPath(id), make([]byte, block), 0o600))
	must(t, os.WriteFile(s.folder.path(layersDir, "README"), nil, 0o600))
	if r := collect(t, s); r.Temps != 2 || len(r.Layers) != 0 || r.Bytes != 2*block {
		t.Errorf("collected %+v", r)
	}
	h, err := d.Commit()
	must(t, err)
	defer h.Close()
	if got := files(t, s); !slices.Equal(got, sortedNames("layers/README", "layers/"+h.ID.String())) {
		t.Errorf("there are %v", got)
	}
}

func sortedNames(names ...string) []string { slices.Sort(names); return names }

func TestWhatIsOpenIsCountedAndKept(t *testing.T) {
	s := open(t, t.TempDir())
	h := mustWrite(t, s, layer.ID{}, 1, false)
	if r, err := s.GC(false); err != nil || r.Busy != 1 || len(r.Layers) != 0 {
		t.Errorf("while it is open: %+v, %v", r, err)
	}
	must(t, h.Close())
	if r, err := s.GC(false); err != nil || r.Busy != 0 || len(r.Layers) != 1 {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

func TestADamagedPinStopsTheCollection(t *testing.T) {
	for name, record := range map[string]string{
		"empty": "", "no JSON": "layers", "another format": `{"format":2,"layers":[]}`,
		"no IDs": `{"format":1,"layers":["../x"]}`, "huge": strings.Repeat(" ", maxPinBytes+1),
	} {
		s := open(t, t.TempDir())
		h := mustWrite(t, s, layer.ID{}, 1, false)
		must(t, h.Close())
		must(t, os.WriteFile(s.folder.path(pinsDir, "bad"), []byte(record), 0o600))
		if _, err := s.GC(false); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "pin bad") {
			t.Errorf("%s: %v", name, err)
		}
		if got := listed(t, s); len(got) != 1 {
			t.Errorf("%s: layers %v", name, got)
		}
		must(t, s.Unpin("bad"))
		if r, err := s.GC(false); err != nil || len(r.Layers) != 1 {
			t.Errorf("%s: after the release: %+v, %v", name, r, err)
		}
	}
}

func TestNamesOfPins(t *testing.T) {
	s := open(t, t.TempDir())
	for _, name := range []string{"", ".", "..", ".a", "a/b", "../a", "a b", "ä", "a\n", strings.Repeat("x", 129)} {
		if err := s.Pin(name); !errors.Is(err, ErrName) {
			t.Errorf("pin %q: %v", name, err)
		}
		if err := s.Unpin(name); !errors.Is(err, ErrName) {
			t.Errorf("release %q: %v", name, err)
		}
	}
	if err := s.Pin("a", make([]layer.ID, 1)...); err == nil {
		t.Error("the zero ID is held")
	}
	many := make([]layer.ID, MaxPinned+1)
	for i := range many {
		many[i] = layer.NewID()
	}
	if err := s.Pin("a", many...); err == nil {
		t.Error("too many layers are held")
	}
	if b, err := encodeRecord(many[:MaxPinned]); err != nil || len(b) > maxPinBytes {
		t.Errorf("the largest record has %d bytes: %v", len(b), err)
	}
}

// Two stores on one directory exclude each other like two processes, because locks belong to open files.
func TestTwoStoresOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	worker := func(name string, s *Store) {
		defer wg.Done()
		for i := range 15 {
			h, err := write(s, layer.ID{}, byte(i+1), i%2 == 0)
			if err != nil {
				errs <- err
				return
			}
			id := h.ID
			err = errors.Join(s.Pin(name, id), h.Close())
			if h, err2 := s.Get(id); err2 == nil {
				h.Close()
			} else {
				err = errors.Join(err, err2)
			}
			if _, err2 := s.GC(false); err != nil || err2 != nil {
				errs <- errors.Join(err, err2)
				return
			}
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		wg.Add(1)
		go worker(name, open(t, dir))
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	s := open(t, dir)
	if _, err := s.GC(false); err != nil {
		t.Error(err)
	}
	if got := listed(t, s); len(got) != 3 {
		t.Errorf("layers %v, want the three that are held", got)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	good, err := encodeRecord([]layer.ID{layer.NewID(), layer.NewID()})
	must(f, err)
	f.Add(good)
	f.Add([]byte(`{"format":1,"layers":[null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, err := decodeRecord(b)
		if err != nil {
			return
		}
		if _, err := encodeRecord(ids); err != nil {
			t.Fatal(err)
		}
	})
}
