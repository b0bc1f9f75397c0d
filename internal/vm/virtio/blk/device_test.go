package blk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

const diskSectors = 256

// ram is a Backend without optional methods.
type ram struct {
	b       []byte
	err     error
	flushes int
}

func (r *ram) Size() int64 { return int64(len(r.b)) }
func (r *ram) Flush() error {
	r.flushes++
	return r.err
}
func (r *ram) ReadAt(p []byte, off int64) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	return bytes.NewReader(r.b).ReadAt(p, off)
}
func (r *ram) WriteAt(p []byte, off int64) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	return copy(r.b[off:], p), nil
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// imageFile creates a disk image on the host.
func imageFile(t testing.TB, content []byte) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	b, err := NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	return b, path
}

func newDisk(t testing.TB, cfg Config) *Device {
	t.Helper()
	dev, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func start(t testing.TB, cfg Config) *virtiotest.Driver {
	t.Helper()
	d, err := virtiotest.New(t, newDisk(t, cfg), virtiotest.NewMemory(8<<20)).Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func header(op uint32, sector uint64) []byte {
	h := make([]byte, headerSize)
	binary.LittleEndian.PutUint32(h, op)
	binary.LittleEndian.PutUint64(h[8:], sector)
	return h
}

// do sends one request and returns the data read and the status.
func do(t testing.TB, d *virtiotest.Driver, op uint32, sector uint64, out []byte, in int) ([]byte, byte) {
	t.Helper()
	got, err := d.Queues[0].Exchange(append(header(op, sector), out...), in+1)
	if err != nil {
		t.Fatalf("op %d at sector %d: %v", op, sector, err)
	}
	return got[:len(got)-1], got[len(got)-1]
}

func expect(t *testing.T, d *virtiotest.Driver, what string, op uint32, sector uint64, out []byte, in int, want byte) []byte {
	t.Helper()
	got, status := do(t, d, op, sector, out, in)
	if status != want {
		t.Errorf("%s: status %d, want %d", what, status, want)
	}
	return got
}

func TestConfig(t *testing.T) {
	file, _ := imageFile(t, make([]byte, diskSectors*SectorSize+100))
	for _, c := range []struct {
		name     string
		cfg      Config
		features uint64
	}{
		{"plain", Config{Backend: &ram{b: make([]byte, diskSectors*SectorSize+100)}}, featureSegMax | featureBlockSize | featureFlush},
		{"read-only", Config{Backend: file, ReadOnly: true}, featureSegMax | featureBlockSize | featureFlush | featureReadOnly},
		{"file", Config{Backend: file}, featureSegMax | featureBlockSize | featureFlush | featureDiscard | featureWriteZeroes},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := virtiotest.New(t, newDisk(t, c.cfg), virtiotest.NewMemory(1<<16))
			if got := b.Offered() & (1<<28 - 1); got != c.features {
				t.Errorf("features %#x, want %#x", got, c.features)
			}
			if got := binary.LittleEndian.Uint64(b.Config(0, 8)); got != diskSectors {
				t.Errorf("capacity %d sectors, want %d", got, diskSectors)
			}
			if got := binary.LittleEndian.Uint32(b.Config(20, 4)); got != 512 {
				t.Errorf("block size %d", got)
			}
			if got := b.Config(58, 16); !bytes.Equal(got, make([]byte, 16)) {
				t.Errorf("beyond the end of the configuration: % x", got)
			}
		})
	}
}

func TestReadWrite(t *testing.T) {
	file, _ := imageFile(t, make([]byte, diskSectors*SectorSize))
	for name, backend := range map[string]Backend{"memory": &ram{b: make([]byte, diskSectors*SectorSize)}, "file": file} {
		t.Run(name, func(t *testing.T) {
			d := start(t, Config{Backend: backend})
			want := noise(diskSectors * SectorSize)
			for s := 0; s < diskSectors; s += 16 {
				expect(t, d, "write", opOut, uint64(s), want[s*SectorSize:][:16*SectorSize], 0, statusOK)
			}
			expect(t, d, "flush", opFlush, 0, nil, 0, statusOK)
			if got := expect(t, d, "read", opIn, 0, nil, len(want), statusOK); !bytes.Equal(got, want) {
				t.Error("what was read is not what was written")
			}
		})
	}
}

// A request may be split into descriptors in any way.
func TestAnyFraming(t *testing.T) {
	want := noise(diskSectors * SectorSize)
	file, _ := imageFile(t, want)
	d := start(t, Config{Backend: file})
	r := rand.New(rand.NewPCG(1, 2))
	cut := func(gpa uint64, n int, write bool) (segs []virtiotest.Seg) {
		for n > 0 {
			k := min(n, 1+r.IntN(300))
			segs = append(segs, virtiotest.Seg{GPA: gpa, Len: k, Write: write})
			gpa, n = gpa+uint64(k), n-k
		}
		return segs
	}
	for sector := range uint64(100) {
		h, in := d.Mem.Put(header(opIn, sector)), d.Mem.Alloc(8*SectorSize+1)
		segs := append(cut(h, headerSize, false), cut(in, 8*SectorSize+1, true)...)
		if _, ok := d.Queues[0].Add(segs...); !ok {
			t.Fatal("no descriptors")
		}
		d.Queues[0].Kick()
		if _, _, ok := d.Queues[0].Used(); !ok {
			t.Fatal(d.Fault())
		}
		got := d.Mem.Bytes(in, 8*SectorSize+1)
		if got[8*SectorSize] != statusOK || !bytes.Equal(got[:8*SectorSize], want[sector*SectorSize:][:8*SectorSize]) {
			t.Fatalf("wrong data for sector %d in %d descriptors", sector, len(segs))
		}
	}
}

func TestGetID(t *testing.T) {
	d := start(t, Config{Backend: &ram{}, ID: "root"})
	if got := expect(t, d, "id", opGetID, 0, nil, idSize, statusOK); string(bytes.TrimRight(got, "\x00")) != "root" {
		t.Errorf("id %q", got)
	}
}

func TestRefusals(t *testing.T) {
	file, path := imageFile(t, make([]byte, diskSectors*SectorSize))
	d := start(t, Config{Backend: file})
	expect(t, d, "read past the end", opIn, diskSectors-1, nil, 2*SectorSize, statusIOError)
	expect(t, d, "read far out", opIn, 1<<63, nil, SectorSize, statusIOError)
	expect(t, d, "sector that wraps", opIn, ^uint64(0), nil, SectorSize, statusIOError)
	expect(t, d, "read of half a sector", opIn, 0, nil, 100, statusIOError)
	expect(t, d, "write past the end", opOut, diskSectors, make([]byte, SectorSize), 0, statusIOError)
	expect(t, d, "unknown type", 77, 0, nil, 0, statusUnsupported)
	if err := os.Truncate(path, 10*SectorSize+7); err != nil {
		t.Fatal(err)
	}
	expect(t, d, "image cut short", opIn, 8, nil, 4*SectorSize, statusIOError)
	expect(t, d, "what is left of it", opIn, 8, nil, 2*SectorSize, statusOK)

	ro := start(t, Config{Backend: file, ReadOnly: true})
	expect(t, ro, "write to a read-only disk", opOut, 0, make([]byte, SectorSize), 0, statusIOError)
	expect(t, ro, "discard on a read-only disk", opDiscard, 0, make([]byte, 16), 0, statusUnsupported)
	expect(t, ro, "flush of a read-only disk", opFlush, 0, nil, 0, statusOK)

	bad := start(t, Config{Backend: &ram{b: make([]byte, SectorSize), err: errors.New("medium")}})
	expect(t, bad, "read error", opIn, 0, nil, SectorSize, statusIOError)
	expect(t, bad, "write error", opOut, 0, make([]byte, SectorSize), 0, statusIOError)
	expect(t, bad, "flush error", opFlush, 0, nil, 0, statusIOError)
}

func segments(segs ...segment) (b []byte) {
	for _, s := range segs {
		b = binary.LittleEndian.AppendUint64(b, s.sector)
		b = binary.LittleEndian.AppendUint32(b, s.sectors)
		b = binary.LittleEndian.AppendUint32(b, s.flags)
	}
	return b
}

func TestDiscardAndWriteZeroes(t *testing.T) {
	want := noise(diskSectors * SectorSize)
	file, _ := imageFile(t, want)
	d := start(t, Config{Backend: file})
	for _, c := range []struct {
		name   string
		op     uint32
		ranges []byte
		status byte
	}{
		{"no range", opDiscard, nil, statusIOError},
		{"half a range", opDiscard, make([]byte, 8), statusIOError},
		{"too many ranges", opDiscard, make([]byte, 17*16), statusIOError},
		{"past the end", opWriteZeroes, segments(segment{0, 8, 0}, segment{diskSectors, 1, 0}), statusIOError},
		{"unmap flag on discard", opDiscard, segments(segment{0, 8, 1}), statusUnsupported},
		{"reserved flag", opWriteZeroes, segments(segment{0, 8, 2}), statusUnsupported},
	} {
		expect(t, d, c.name, c.op, 0, c.ranges, 0, c.status)
	}
	if got := expect(t, d, "read", opIn, 0, nil, len(want), statusOK); !bytes.Equal(got, want) {
		t.Fatal("a refused request changed the disk")
	}
	expect(t, d, "zero two ranges", opWriteZeroes, 0, segments(segment{8, 8, 0}, segment{100, 3, 1}), 0, statusOK)
	clear(want[8*SectorSize:][:8*SectorSize])
	clear(want[100*SectorSize:][:3*SectorSize])
	if got := expect(t, d, "read", opIn, 0, nil, len(want), statusOK); !bytes.Equal(got, want) {
		t.Error("wrong content after write-zeroes")
	}
	expect(t, d, "discard", opDiscard, 0, segments(segment{200, 8, 0}), 0, statusOK)

	plain := start(t, Config{Backend: &ram{b: make([]byte, SectorSize)}})
	expect(t, plain, "discard where it is not offered", opDiscard, 0, segments(segment{0, 1, 0}), 0, statusUnsupported)
}

func TestMalformedRequestBreaksTheDevice(t *testing.T) {
	for name, segs := range map[string][]virtiotest.Seg{
		"no status byte": {{GPA: 0x100, Len: headerSize}},
		"short header":   {{GPA: 0x100, Len: headerSize - 1}, {GPA: 0x200, Len: 513, Write: true}},
		"only writable":  {{GPA: 0x200, Len: 513, Write: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := start(t, Config{Backend: &ram{b: make([]byte, 1024)}})
			d.Queues[0].Add(segs...)
			d.Queues[0].Kick()
			if d.Read32(virtiotest.RegStatus)&virtiotest.StatusNeedsReset == 0 || d.Fault() == nil {
				t.Error("device goes on")
			}
			d2, err := d.Start(^uint64(0)) // a reset restores it
			if err != nil {
				t.Fatal(err)
			}
			expect(t, d2, "read after reset", opIn, 0, nil, SectorSize, statusOK)
		})
	}
}

func TestSaveRestore(t *testing.T) {
	disk := &ram{b: noise(diskSectors * SectorSize)}
	d := start(t, Config{Backend: disk, ID: "a"})
	expect(t, d, "read", opIn, 3, nil, SectorSize, statusOK)
	d.MMIO.Pause()
	state, err := d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	b := virtiotest.New(t, newDisk(t, Config{Backend: disk, ID: "b"}), d.Mem.Clone())
	if err := b.MMIO.Restore(state); err != nil {
		t.Fatal(err)
	}
	b.MMIO.Resume()
	d2 := d.Move(b)
	if got := expect(t, d2, "read", opIn, 5, nil, SectorSize, statusOK); !bytes.Equal(got, disk.b[5*SectorSize:][:SectorSize]) {
		t.Error("wrong data after restore")
	}
	if got := expect(t, d2, "id", opGetID, 0, nil, idSize, statusOK); got[0] != 'a' {
		t.Errorf("the serial number changed to %q", got)
	}
	for name, cfg := range map[string]Config{
		"another size": {Backend: &ram{b: make([]byte, SectorSize)}},
		"read-only":    {Backend: disk, ReadOnly: true},
	} {
		if err := virtiotest.New(t, newDisk(t, cfg), d.Mem).MMIO.Restore(state); !errors.Is(err, virtio.ErrBadState) {
			t.Errorf("restore onto a disk with %s: %v", name, err)
		}
	}
}

func TestGoldenState(t *testing.T) {
	const want = "\x01\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" + "\x01" + "\x14\x00\x00\x00" + "root" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	dev := newDisk(t, Config{Backend: &ram{b: make([]byte, 2*SectorSize)}, ReadOnly: true, ID: "root"})
	if got := dev.SaveState(); string(got) != want {
		t.Errorf("state % x", got)
	}
}
