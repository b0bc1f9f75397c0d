package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
)

const testMemory = 64 << 20

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reopen opens the stores of a directory, like a daemon at its start.
func reopen(t testing.TB, dir string) *Store {
	t.Helper()
	layers, err := store.Open(filepath.Join(dir, "layers"), store.Options{})
	must(t, err)
	s, err := OpenStore(filepath.Join(dir, "snapshots"), layers)
	must(t, err)
	return s
}

func open(t testing.TB) *Store {
	t.Helper()
	return reopen(t, t.TempDir())
}

// root returns the directory of both stores.
func (s *Store) root() string { return filepath.Dir(s.dir) }

func file(t testing.TB, d *Draft, name string) *os.File {
	t.Helper()
	f, err := d.File(name)
	must(t, err)
	return f
}

// base creates a base layer of memory with data at the given offsets.
func base(t testing.TB, d *Draft, data map[int64]string) Chain {
	t.Helper()
	l, err := d.Base(layer.Memory, testMemory)
	must(t, err)
	for at, text := range data {
		_, err := l.File().WriteAt([]byte(text), layer.ContentOffset+at)
		must(t, err)
	}
	c, err := d.Place(l)
	must(t, err)
	return c
}

// rest creates the snapshot's other files.
func rest(t testing.TB, d *Draft) {
	t.Helper()
	_, err := file(t, d, StateFile).WriteString("the state")
	must(t, err)
	disk := filepath.Join(t.TempDir(), "root")
	must(t, os.WriteFile(disk, []byte("a root disk"), 0o600))
	f, err := os.Open(disk)
	must(t, err)
	defer f.Close()
	must(t, d.Adopt(t.Context(), DiskFile(0), f))
}

// write creates a snapshot of 64 MiB with data at the given offsets of its memory.
func write(t testing.TB, s *Store, tag string, data map[int64]string) {
	t.Helper()
	d, err := s.Create(tag)
	must(t, err)
	defer d.Discard()
	m := manifest(base(t, d, data))
	rest(t, d)
	must(t, d.Commit(m))
}

// manifest returns the manifest of a snapshot made from an image.
func manifest(memory Chain) *Manifest {
	return &Manifest{
		CreatedUnixMS: 1700000000000,
		Image:         &Image{Name: "python-numpy", Digest: "sha256:ab", Kernel: "6.12"},
		Shape:         vmspec.Shape{MemoryMiB: testMemory >> 20, VCPUs: 1, Disks: 1},
		Cmdline:       "console=ttyS0",
		Memory:        memory,
		State:         State{File: StateFile},
		Disks:         []Disk{{File: DiskFile(0), ReadOnly: true}},
		Languages:     []string{"python"},
		Agent:         Agent{Version: "0.1", Capabilities: []string{"identity-port"}},
		Steps:         []Step{{Name: "boot", TookMS: 1200}},
	}
}

// layersOf returns the IDs of the layer store's layers.
func layersOf(t testing.TB, s *Store) []layer.ID {
	t.Helper()
	all, err := s.layers.List()
	must(t, err)
	var ids []layer.ID
	for _, e := range all {
		must(t, e.Err)
		ids = append(ids, e.ID)
	}
	return ids
}
