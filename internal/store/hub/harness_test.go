package hub

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/snapshot"
)

const testMemory = 64 << 20

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is one host's store.
type host struct {
	layers    *store.Store
	snapshots *snapshot.Store
	dir       string
}

func newHost(t testing.TB, opt store.Options) *host {
	t.Helper()
	h := &host{dir: t.TempDir()}
	h.reopen(t, opt)
	return h
}

func (h *host) reopen(t testing.TB, opt store.Options) {
	t.Helper()
	var err error
	h.layers, err = store.Open(filepath.Join(h.dir, "layers"), opt)
	must(t, err)
	h.snapshots, err = snapshot.OpenStore(filepath.Join(h.dir, "snapshots"), h.layers)
	must(t, err)
}

// noise returns bytes that do not compress, the same for each seed.
func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

var (
	baseID = layer.ID{1, 2, 3}
	diffID = layer.ID{4, 5, 6}
)

// write makes a snapshot with a base of memory, and with a layer above it if diff is set. The IDs are fixed.
func (h *host) write(t testing.TB, tag string, diff []byte) {
	t.Helper()
	d, err := h.snapshots.Create(tag)
	must(t, err)
	defer d.Discard()
	chain := snapshot.Chain{Own: 1}
	add := func(spec layer.Spec, at int64, b []byte) {
		have, err := h.layers.Get(spec.ID)
		if err != nil {
			l, err := h.layers.Create(spec, store.DraftOptions{})
			must(t, err)
			must(t, l.Data(at, b))
			have, err = l.Commit()
			must(t, err)
			must(t, h.layers.Hash(t.Context(), have.ID, nil))
		}
		d.Keep(have)
		chain.Layers = append(chain.Layers, have.ID)
	}
	add(layer.Spec{ID: baseID, Kind: layer.Memory, Size: testMemory}, 1<<20, noise(1, 600<<10))
	if diff != nil {
		add(layer.Spec{ID: diffID, Parent: baseID, Kind: layer.Memory, Size: testMemory}, 2<<20, diff)
	}
	state, err := d.File(snapshot.StateFile)
	must(t, err)
	_, err = state.WriteString("the state")
	must(t, err)
	root, err := d.File(snapshot.DiskFile(0))
	must(t, err)
	_, err = root.WriteAt([]byte("a root disk"), 300<<10)
	must(t, err)
	must(t, root.Truncate(1<<20))
	must(t, d.Commit(&snapshot.Manifest{
		CreatedUnixMS: 1700000000000, Owner: "somebody", Image: &snapshot.Image{Name: "python", Digest: "sha256:ab"},
		Shape: vmspec.Shape{MemoryMiB: testMemory >> 20, VCPUs: 1, Disks: 1}, Cmdline: "console=ttyS0", Memory: chain,
		State: snapshot.State{File: snapshot.StateFile}, Disks: []snapshot.Disk{{File: snapshot.DiskFile(0), ReadOnly: true}},
		Branch: &snapshot.Branch{Sandbox: "sb-1"},
	}))
}

// export returns a snapshot as a layout.
func (h *host) export(t testing.TB, tag string, secrets ...string) ([]byte, error) {
	t.Helper()
	files, err := h.snapshots.Open(tag)
	must(t, err)
	defer files.Close()
	var b bytes.Buffer
	err = (&Export{Files: files, Layers: h.layers, Secrets: secrets}).Write(t.Context(), &b)
	if err != nil && b.Len() > 0 {
		WriteFailure(&b, err)
	}
	return b.Bytes(), err
}

func layout(t testing.TB, b []byte) *Layout {
	t.Helper()
	l, err := OpenLayout(bytes.NewReader(b))
	must(t, err)
	return l
}

// stream returns the stream for a daemon.
func stream(t testing.TB, l *Layout, probe bool) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, (&Outgoing{Raw: l.Raw, Artifact: l.Artifact, Open: l.Blob}).Write(&b, probe))
	return b.Bytes()
}

// receive makes a snapshot of a stream.
func (h *host) receive(t testing.TB, tag string, b []byte) error {
	t.Helper()
	in, err := Open(bytes.NewReader(b), nil)
	if err != nil {
		return err
	}
	state, err := in.State()
	if err != nil {
		return err
	}
	d, err := h.snapshots.Create(tag)
	must(t, err)
	defer d.Discard()
	if err := in.Receive(t.Context(), d, state); err != nil {
		return err
	}
	return d.Commit(in.Manifest)
}

// left returns the files below the host's directories, except locks.
func (h *host) left(t testing.TB) (all []string) {
	t.Helper()
	must(t, filepath.WalkDir(h.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && e.Name() != "lock" && e.Name() != "uses" {
			all = append(all, path)
		}
		return err
	}))
	return all
}
