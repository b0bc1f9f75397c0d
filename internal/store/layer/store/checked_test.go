package store

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/fsverity"
)

func noPause(context.Context, int64) error { return nil }

// hashed writes a layer with digests.
func hashed(t *testing.T, s *Store) layer.ID {
	t.Helper()
	h, err := write(s, layer.ID{}, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	if _, err := s.Check(t.Context(), h.ID, time.Now, noPause); !errors.Is(err, ErrUnhashed) {
		t.Errorf("a check without digests: %v", err)
	}
	if err := s.Hash(t.Context(), h.ID, nil); err != nil {
		t.Fatal(err)
	}
	return h.ID
}

func flipBit(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// A flipped bit in the content or in the header is found, remembered by the next store, and forgotten when the
// file is correct again.
func TestAFlippedBitIsFoundAndRemembered(t *testing.T) {
	for _, at := range []int64{layer.ContentOffset + 100, 20} {
		dir := t.TempDir()
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		id := hashed(t, s)
		if c, err := s.Check(t.Context(), id, time.Now, noPause); err != nil || c.Damage != "" {
			t.Errorf("a good one: %+v, %v", c, err)
		}
		flipBit(t, s.Path(id), at)
		c, err := s.Check(t.Context(), id, time.Now, noPause)
		if err != nil || c.Damage == "" {
			t.Fatalf("got %+v, %v", c, err)
		}
		t.Log(c.Damage)
		if s, err = Open(dir, Options{}); err != nil {
			t.Fatal(err)
		}
		if again, ok := s.Checked(id); !ok || again.Damage != c.Damage {
			t.Errorf("the next one knows %+v", again)
		}
		flipBit(t, s.Path(id), at)
		if c, err := s.Check(t.Context(), id, time.Now, noPause); err != nil || c.Damage != "" {
			t.Errorf("when it is right again: %+v, %v", c, err)
		}
	}
}

// An interrupted check stores no result. Results for layers that are gone are removed.
func TestACheckThatIsCutShort(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := hashed(t, s)
	before, _ := s.Checked(id)
	stop := errors.New("stop")
	later := func() time.Time { return before.At.Add(time.Hour) }
	if _, err := s.Check(t.Context(), id, later, func(context.Context, int64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if now, _ := s.Checked(id); now != before {
		t.Errorf("it noted %+v", now)
	}
	if err := os.Remove(s.Path(id)); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveChecked(); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Checked(id); ok {
		t.Error("a layer that is gone is remembered")
	}
}

// fs-verity is enabled when a layer is checked, not when it is created. It is not tried again on a file system
// without it, nor for a file that consists mostly of holes.
func TestTheKernelIsAskedToProtectLayers(t *testing.T) {
	s, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	answer := error(nil)
	s.checks.verity = func(f *os.File) error {
		if _, err := f.Write([]byte{0}); err == nil {
			t.Error("it is open for writing")
		}
		asked = append(asked, f.Name())
		return answer
	}
	check := func() layer.ID {
		id := hashed(t, s)
		if _, err := s.Check(t.Context(), id, time.Now, noPause); err != nil {
			t.Fatal(err)
		}
		return id
	}
	hashed(t, s)
	if len(asked) > 0 {
		t.Errorf("a layer that was only made: asked for %q", asked)
	}
	id := check()
	if len(asked) != 1 || !strings.HasSuffix(asked[0], id.String()) {
		t.Errorf("asked for %q", asked)
	}
	holes := hashed(t, s)
	if err := os.Truncate(s.folder.layerPath(holes), 64<<20); err != nil {
		t.Fatal(err)
	}
	s.protect(t.Context(), holes)
	if len(asked) != 1 {
		t.Error("asked for a file that is nearly all holes")
	}
	answer = errors.New("text file busy")
	check()
	answer = fsverity.ErrUnsupported
	check()
	check()
	if len(asked) != 3 {
		t.Errorf("asked %d times, want once more after an error, and never again when there is none", len(asked))
	}
}

func FuzzChecked(f *testing.F) {
	f.Add([]byte(`{"format":1,"layers":{"00112233445566778899aabbccddeeff":{"at_unix":1,"damage":"x"}}}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		by, err := decodeChecked(b)
		if err != nil {
			return
		}
		again, err := encodeChecked(by)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeChecked(again); err != nil || len(back) != len(by) {
			t.Errorf("%d layers became %d, %v", len(by), len(back), err)
		}
	})
}
