package cowdisk

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
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

// After each rotation the frozen disk keeps its moment, flat copies included,
// and the one that goes on has the same content and changes alone.
func TestRotate(t *testing.T) {
	const size = 16 * BlockSize
	under := emptyFile(t, "base")
	if _, err := under.Write(bytes.Repeat([]byte{0xba}, 4*BlockSize)); err != nil {
		t.Fatal(err)
	}
	d, err := Open(emptyFile(t, "own0"), size, []Extent{{File: under, Offset: 2 * BlockSize, Length: 4 * BlockSize}})
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
		if err := d.WriteZeroes(5*BlockSize, BlockSize, true); err != nil {
			t.Fatal(err)
		}
		want := content(t, d)
		frozen, err := d.Rotate(emptyFile(t, "own"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, d), want) {
			t.Fatalf("rotation %d changed the disk", i)
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
