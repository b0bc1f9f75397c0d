package overlay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/store/extent"
)

func emptyFile(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func content(t *testing.T, d *Disk) []byte {
	t.Helper()
	b := make([]byte, d.Size())
	if _, err := d.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// After each switch the frozen disk keeps its content, also in flat copies. The continued disk has the same
// content, and only it changes.
func TestSwitchOverlay(t *testing.T) {
	const size = 16 * BlockSize
	under := emptyFile(t, "base")
	if _, err := under.Write(bytes.Repeat([]byte{0xba}, 4*BlockSize)); err != nil {
		t.Fatal(err)
	}
	d, err := Open(emptyFile(t, "own0"), size, []extent.Extent{{File: under, Offset: 2 * BlockSize, Length: 4 * BlockSize}})
	if err != nil {
		t.Fatal(err)
	}
	type moment struct {
		disk *Disk
		want []byte
	}
	var moments []moment
	for i := range 4 {
		at := int64(i+1) * BlockSize
		if _, err := d.WriteAt([]byte{byte(i + 1)}, at+7); err != nil {
			t.Fatal(err)
		}
		if err := d.WriteZeroes(5*BlockSize, BlockSize); err != nil {
			t.Fatal(err)
		}
		want := content(t, d)
		frozen, err := d.SwitchOverlay(emptyFile(t, "own"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, d), want) {
			t.Fatalf("switch %d changed the disk", i)
		}
		moments = append(moments, moment{frozen, want})
		if _, err := d.WriteAt(bytes.Repeat([]byte{0xff}, 3*BlockSize), at); err != nil {
			t.Fatal(err)
		}
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range moments {
		if !bytes.Equal(content(t, m.disk), m.want) {
			t.Errorf("moment %d has changed", i)
		}
		flat := emptyFile(t, "flat")
		if _, err := m.disk.CopyTo(flat); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(flat.Name())
		if err != nil || !bytes.Equal(got, m.want) {
			t.Errorf("the flat copy of moment %d differs (%v)", i, err)
		}
	}
}

// The overlay files left by SwitchOverlay, stacked over the base one by one, give the disk at each moment. With
// that as its base, the disk reads the same content without the files.
func TestFrozenFilesAreLayers(t *testing.T) {
	const size = 16*BlockSize + 512
	d, err := Open(emptyFile(t, "own0"), size, nil)
	if err != nil {
		t.Fatal(err)
	}
	flat := make([]byte, 17*BlockSize) // content as seen through a store's layers
	own := d.file.(file).f
	for i := range 4 {
		if i != 2 { // a switch without writes in between
			if _, err := d.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, BlockSize+100), int64(i)*BlockSize+700); err != nil {
				t.Fatal(err)
			}
			if _, err := d.WriteAt([]byte{0xee}, size-1); err != nil {
				t.Fatal(err)
			}
			if err := d.Discard(int64(i)*BlockSize, 2*BlockSize); err != nil {
				t.Fatal(err)
			}
			if err := d.WriteZeroes(9*BlockSize, BlockSize); err != nil {
				t.Fatal(err)
			}
			if _, err := d.WriteAt([]byte{byte(i)}, 12*BlockSize); err != nil {
				t.Fatal(err)
			}
		}
		want := content(t, d)
		next := emptyFile(t, "own")
		frozen, err := d.SwitchOverlay(next)
		if err != nil {
			t.Fatal(err)
		}
		if err := frozen.SaveMap(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(own, size, nil) // as in another process
		if err != nil {
			t.Fatal(err)
		}
		err = again.Allocated(func(off, n int64, zero bool) error {
			if zero {
				clear(flat[off : off+n])
				return nil
			}
			_, err := again.ReadAt(flat[off:off+n], off)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(flat[:size], want) {
			t.Fatalf("moment %d is not what its files say", i)
		}
		under := emptyFile(t, "layer")
		if _, err := under.Write(flat); err != nil {
			t.Fatal(err)
		}
		if err := d.Rebase([]extent.Extent{{File: under, Length: size}}); err != nil {
			t.Fatal(err)
		}
		if err := own.Close(); err != nil { // the disk no longer needs it
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, d), want) {
			t.Fatalf("rebase %d changed the disk", i)
		}
		own = next
	}
	if err := d.Rebase([]extent.Extent{{File: own, Length: 1 << 30}}); err == nil {
		t.Error("a base that cannot be was taken")
	}
}

// The base is replaced while the disk is read.
func TestRebaseWhileInUse(t *testing.T) {
	const size = 64 * BlockSize
	want := bytes.Repeat([]byte{7}, size)
	open := func() *os.File {
		f := emptyFile(t, "base")
		if _, err := f.Write(want); err != nil {
			t.Fatal(err)
		}
		return f
	}
	base := open()
	d, err := Open(emptyFile(t, "own"), size, []extent.Extent{{File: base, Length: size}})
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		got := make([]byte, size)
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
				ended <- fmt.Errorf("read: %w", err)
				return
			}
		}
	}()
	for range 50 {
		next := open()
		if err := d.Rebase([]extent.Extent{{File: next, Length: size}}); err != nil {
			t.Fatal(err)
		}
		base.Close()
		base = next
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
