package overlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// model has each sector's content as a stamp, and all contents that a crash may restore. Stamp 0 is zeros.
type model struct {
	t       *testing.T
	r       *rand.Rand
	now     []uint64
	maybe   [][]uint64 // since the last flush
	next    uint64
	backing []extent.Extent
	own     overlayFile
	d       *Disk
	whatFor string
}

func sectorOf(stamp uint64) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, stamp), sectorSize/8)
}

// modelBase creates base files with extents of all kinds: adjacent, with gaps between them, out of order in their
// files, and not aligned to blocks.
func modelBase(t *testing.T, r *rand.Rand, sectors int64) ([]extent.Extent, []uint64) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		files[i] = tempFile(t, fmt.Sprint("base", i))
		if err := files[i].Truncate(4 * sectors * sectorSize); err != nil {
			t.Fatal(err)
		}
	}
	now := make([]uint64, sectors)
	var base []extent.Extent
	free := 4 * sectors // end of the unused part of both files
	for s := int64(r.IntN(20)); s < sectors; {
		n := min(sectors-s, 1+int64(r.IntN(40)))
		free -= n
		f := files[r.IntN(2)]
		for i := range n {
			now[s+i] = uint64(1e9) + uint64(s+i)
			if _, err := f.WriteAt(sectorOf(now[s+i]), (free+i)*sectorSize); err != nil {
				t.Fatal(err)
			}
		}
		base = append(base, extent.Extent{File: f, FileOffset: free * sectorSize, Offset: s * sectorSize, Length: n * sectorSize})
		s += n + int64(r.IntN(2)*r.IntN(30))
	}
	return base, now
}

func tempFile(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func newModel(t *testing.T, seed uint64, own overlayFile) *model {
	r := rand.New(rand.NewPCG(seed, 1))
	m := &model{t: t, r: r, own: own}
	m.backing, m.now = modelBase(t, r, int64(200+r.IntN(600)))
	m.settle()
	m.reopen(own)
	return m
}

// settle makes the present content durable: a crash restores nothing older.
func (m *model) settle() {
	m.maybe = make([][]uint64, len(m.now))
	for i, v := range m.now {
		m.maybe[i] = []uint64{v}
	}
}

func (m *model) reopen(own overlayFile) {
	m.t.Helper()
	d, err := open(own, int64(len(m.now))*sectorSize, m.backing)
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	m.own, m.d = own, d
}

// bufs splits a slice into buffers of random sizes.
func (m *model) bufs(b []byte) (out [][]byte) {
	for len(b) > 0 {
		k := min(len(b), 1+m.r.IntN(5000))
		out, b = append(out, b[:k:k]), b[k:]
	}
	return out
}

func (m *model) span() (s, n int64) {
	s = m.r.Int64N(int64(len(m.now)))
	return s, 1 + m.r.Int64N(min(60, int64(len(m.now))-s))
}

func (m *model) write() error {
	s, n := m.span()
	var b []byte
	stamps := make([]uint64, n)
	for i := range stamps {
		m.next++
		stamps[i] = m.next
		b = append(b, sectorOf(m.next)...)
	}
	err := m.d.WriteVecAt(m.bufs(b), s*sectorSize)
	for i := range n {
		m.maybe[s+i] = append(m.maybe[s+i], stamps[i])
		if err == nil {
			m.now[s+i] = stamps[i]
		}
	}
	return err
}

func (m *model) zero() error {
	s, n := m.span()
	err := m.d.WriteZeroes(s*sectorSize, n*sectorSize)
	for i := range n {
		m.maybe[s+i] = append(m.maybe[s+i], 0)
		if err == nil {
			m.now[s+i] = 0
		}
	}
	return err
}

func (m *model) discard() error {
	const perBlock = BlockSize / sectorSize
	s, n := m.span()
	err := m.d.Discard(s*sectorSize, n*sectorSize)
	for i := s; i < s+n; i++ {
		whole := i/perBlock*perBlock >= s && min(i/perBlock*perBlock+perBlock, int64(len(m.now))) <= s+n
		if whole {
			m.maybe[i] = append(m.maybe[i], 0)
		}
		if whole && err == nil {
			m.now[i] = 0
		}
	}
	return err
}

// content reads the whole disk as stamps.
func (m *model) content() []uint64 {
	m.t.Helper()
	b := make([]byte, len(m.now)*sectorSize)
	if err := m.d.ReadVecAt(m.bufs(b), 0); err != nil {
		m.t.Fatalf("read: %v", err)
	}
	out := make([]uint64, len(m.now))
	for i := range out {
		sec := b[i*sectorSize:][:sectorSize]
		if out[i] = binary.LittleEndian.Uint64(sec); !bytes.Equal(sec, sectorOf(out[i])) {
			m.t.Fatalf("sector %d is torn", i)
		}
	}
	return out
}

func (m *model) check() {
	m.t.Helper()
	if got := m.content(); !slices.Equal(got, m.now) {
		m.t.Fatalf("%s: got %v, want %v", m.whatFor, got, m.now)
	}
}

// observe adopts the disk's content, if it is one of the possible contents.
func (m *model) observe() {
	m.t.Helper()
	got := m.content()
	for i, v := range got {
		if !slices.Contains(m.maybe[i], v) {
			m.t.Fatalf("%s: sector %d has %d, want one of %v", m.whatFor, i, v, m.maybe[i])
		}
	}
	m.now = got
}

func (m *model) step(i int) {
	m.t.Helper()
	m.whatFor = fmt.Sprintf("step %d", i)
	var err error
	switch p := m.r.IntN(100); {
	case p < 60:
		err = m.write()
	case p < 70:
		err = m.zero()
	case p < 80:
		err = m.discard()
	case p < 90:
		if err = m.d.Flush(); err == nil {
			m.settle()
		}
	default:
		m.checkOwn()
	}
	if err != nil {
		m.t.Fatalf("%s: %v", m.whatFor, err)
	}
	m.check()
}

// checkOwn compares a capture's view with the disk.
func (m *model) checkOwn() {
	m.t.Helper()
	end, wasZero := int64(-1), false
	err := m.d.Allocated(func(off, n int64, zero bool) error {
		if off%BlockSize != 0 || n <= 0 || off < end || off == end && zero == wasZero {
			m.t.Fatalf("run of %d bytes at %d (zero %v) behind %d (%v)", n, off, zero, end, wasZero)
		}
		for s := off / sectorSize; zero && s < (off+n)/sectorSize; s++ {
			if m.now[s] != 0 {
				m.t.Fatalf("sector %d is in a zero run and has %d", s, m.now[s])
			}
		}
		end, wasZero = off+n, zero
		return nil
	})
	if err != nil || end > m.d.Size() {
		m.t.Fatalf("allocated blocks end at %d of %d: %v", end, m.d.Size(), err)
	}
	m.checkCopy()
}

func (m *model) checkCopy() {
	m.t.Helper()
	f := tempFile(m.t, "copy")
	if _, err := m.d.CopyTo(f); err != nil {
		m.t.Fatal(err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil {
		m.t.Fatal(err)
	}
	var want []byte
	for _, v := range m.now {
		want = append(want, sectorOf(v)...)
	}
	if !bytes.Equal(got, want) {
		m.t.Fatalf("%s: the copy is not the disk", m.whatFor)
	}
	m.checkHoles(want)
}

// checkHoles checks that all skipped ranges are zero.
func (m *model) checkHoles(want []byte) {
	m.t.Helper()
	for at := int64(0); at < m.d.Size(); {
		data, err := m.d.NextData(at)
		if err != nil || data < at || data > m.d.Size() {
			m.t.Fatalf("%s: data from %d on is said to be at %d: %v", m.whatFor, at, data, err)
		}
		if !bytes.Equal(want[at:data], make([]byte, data-at)) {
			m.t.Fatalf("%s: %d bytes at %d are said to be a hole", m.whatFor, data-at, at)
		}
		at = data + sectorSize
	}
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("file", seed), func(t *testing.T) {
			own := file{tempFile(t, "own")}
			m := newModel(t, seed, own)
			for i := range 150 {
				m.step(i)
				if m.r.IntN(40) == 0 { // a killed process loses its memory
					m.reopen(own)
					m.observe()
				}
			}
		})
		t.Run(fmt.Sprint("power", seed), func(t *testing.T) {
			m := newModel(t, seed, newFake())
			for i := range 150 {
				m.step(i)
				if m.r.IntN(15) == 0 {
					m.reopen(m.own.(*fakeFile).loss(m.r))
					m.observe()
					m.settle()
				}
			}
		})
	}
}

// A write that fails for lack of host space leaves each sector with its old or its new content.
func TestHostErrors(t *testing.T) {
	errHost := unix.ENOSPC // other errors are permanent: TestALostWriteIsForGood
	for seed := range uint64(8) {
		f := newFake()
		m := newModel(t, seed, f)
		failing := false
		f.fail = func(op string) error {
			if op != "read" && op != "sync" && failing && m.r.IntN(3) == 0 {
				return errHost
			}
			return nil
		}
		for i := range 300 {
			m.whatFor = fmt.Sprintf("seed %d step %d", seed, i)
			failing = true
			err := []func() error{m.write, m.zero, m.discard}[m.r.IntN(3)]()
			failing = false
			if err != nil && !errors.Is(err, errHost) {
				t.Fatal(err)
			}
			m.observe()
		}
	}
}
