package live

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/store/pagedigest"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// The oracle makes captures in random order and manner. Each image, assembled as the daemon does
// it, must equal the guest's memory and disk of the instant page by page and block by block. There
// are two kinds of guests: oracle_plain_test.go, oracle_guest_test.go.

// world is a kind of guest that the oracle captures.
type world interface {
	// restore makes a machine from a capture; state is nil for the first one.
	restore(memory []extent.Extent, disks []vmm.Disk, state []byte) *subject
}

// subject is one machine and its known content.
type subject struct {
	*Machine
	guest   standstill
	disturb func(*rand.Rand) // changes the rate and the place of its writes
	close   func()

	base     image // the layers mapped by its memory
	digests  []uint64
	disk     *os.File // flat content under its disk at the last rebase; nil if it has no disk
	own      string   // the disk's current overlay file
	frozen   []string // overlay files that it wrote to since disk
	switched int
}

// image is memory as layers: files with their pages.
type image []memoryLayer

type memoryLayer struct {
	file *os.File
	has  extent.PageSet
}

const (
	oracleMiB      = 16
	oracleMemory   = oracleMiB << 20
	oracleDisk     = 1 << 20
	oracleMaxChain = 6
)

// oracle is one random sequence.
type oracle struct {
	t      *testing.T
	random *rand.Rand
	world  world
	dir    string
	files  int
	s      *subject
	stats  map[string]int
	story  []string // of the machine, for a failure
}

func newOracle(t *testing.T, random *rand.Rand, w world, disk bool) *oracle {
	o := &oracle{t: t, random: random, world: w, dir: t.TempDir(), stats: map[string]int{}}
	s := &subject{digests: make([]uint64, oracleMemory/pagedigest.PageSize)}
	for i := range s.digests {
		s.digests[i] = pagedigest.Zero
	}
	if disk {
		s.disk = o.file("disk")
		checkOK(t, s.disk.Truncate(oracleDisk))
		_, err := s.disk.WriteAt(bytes.Repeat([]byte{0xd1}, oracleDisk/4), oracleDisk/2)
		checkOK(t, err)
	}
	o.start(s, nil)
	t.Cleanup(func() {
		o.s.close()
		if t.Failed() {
			t.Logf("the way there: %s", strings.Join(o.story, "; "))
		}
	})
	return o
}

func (o *oracle) tell(format string, args ...any) {
	o.story = append(o.story, fmt.Sprintf(format, args...))
}

func (o *oracle) file(kind string) *os.File {
	o.t.Helper()
	o.files++
	f, err := os.Create(filepath.Join(o.dir, fmt.Sprint(kind, o.files)))
	checkOK(o.t, err)
	o.t.Cleanup(func() { f.Close() })
	return f
}

// again opens a file that other code closes.
func (o *oracle) again(path string) *os.File {
	o.t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	checkOK(o.t, err)
	return f
}

// start makes a machine from the description in s.
func (o *oracle) start(s *subject, state []byte) {
	o.t.Helper()
	var disks []vmm.Disk
	if s.disk != nil {
		s.own = o.file("own").Name()
		disks = []vmm.Disk{{Overlay: o.again(s.own), Size: oracleDisk, Base: o.flatBase(s.disk)}}
	}
	made := o.world.restore(s.base.extents(o.t), disks, state)
	s.Machine, s.guest, s.disturb, s.close = made.Machine, made.guest, made.disturb, made.close
	o.s = s
}

func (o *oracle) flatBase(flat *os.File) []extent.Extent {
	return []extent.Extent{{File: o.again(flat.Name()), Length: oracleDisk}}
}

// manner describes how to make a capture.
type manner struct {
	live, digest   bool
	limit          time.Duration
	buffer         int64
	fullMemory     bool // the memory file accepts no byte
	unwrittenIndex bool // writing the last file fails
}

func (o *oracle) someManner() manner {
	limits := []time.Duration{0, 0, 0, time.Nanosecond, time.Millisecond, 3 * time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second}
	buffers := []int64{0, 0, guestmem.PageSize, 64 << 10, 1 << 20}
	return manner{
		live: o.random.IntN(4) > 0, digest: o.random.IntN(5) > 0,
		limit: limits[o.random.IntN(len(limits))], buffer: buffers[o.random.IntN(len(buffers))],
		fullMemory: o.random.IntN(12) == 0, unwrittenIndex: o.random.IntN(15) == 0,
	}
}

// captured holds the files of a capture.
type captured struct {
	memory, state, index, digest *os.File
	res                          vmm.CaptureResult
}

// capture makes a capture and checks it. It returns nil if the capture failed as its manner
// required.
func (o *oracle) capture(how manner) *captured {
	o.t.Helper()
	o.tell("%+v", how)
	c := captured{memory: o.memoryFile(how), state: o.file("state"), index: o.file("index"), digest: o.file("digest")}
	into := vmm.CaptureConfig{
		Memory: duplicate(o.t, c.memory), State: duplicate(o.t, c.state), Index: duplicate(o.t, c.index),
		Live: how.live, Max: how.limit,
	}
	if how.digest {
		into.Digest = duplicate(o.t, c.digest)
	}
	if how.unwrittenIndex {
		into.Index.Close()
		into.Index = nil
	}
	var next string
	if o.s.disk != nil {
		next = o.file("own").Name()
		into.Disks = []*os.File{o.again(next)}
	}
	o.s.Machine.pauseBuffer = how.buffer
	finish, res, err := o.s.Machine.capture(o.s.guest, into)
	c.res = res
	if err == nil {
		err = finish()
	}
	o.noteSwitch(next)
	o.tell("rounds %d, %d KiB, %d paused, %v", res.Rounds, res.Bytes>>10, res.PausedBytes>>10, err)
	switch {
	case err == nil && (how.fullMemory && res.Bytes > 0 || how.unwrittenIndex):
		o.t.Fatal("a capture succeeded that could not be written")
	case err == nil:
	case errors.Is(err, vmm.ErrPause) && how.limit > 0:
		o.stats["refused"]++
		return nil
	case how.fullMemory || how.unwrittenIndex:
		o.stats["failed"]++
		checkOK(o.t, o.s.Machine.disks.saveMaps())
		return nil
	default:
		o.t.Fatalf("capture: %v", err)
	}
	o.count(how, res)
	if !how.digest {
		o.stats["without digest"]++
		return nil
	}
	return &c
}

func (o *oracle) count(how manner, res vmm.CaptureResult) {
	o.stats["captures"]++
	switch {
	case res.Rounds == 0 && how.live:
		o.stats["live without a round"]++
	case how.live:
		o.stats["live with rounds"]++
	case res.Rounds > 0:
		o.stats["diff with rounds"]++
	default:
		o.stats["diff"]++
	}
	if buffer := how.buffer; buffer > 0 && res.PausedBytes > buffer {
		o.stats["beyond the buffer"]++
	}
}

// memoryFile returns a file for memory, or one that cannot be written.
func (o *oracle) memoryFile(how manner) *os.File {
	o.t.Helper()
	if !how.fullMemory {
		return o.file("memory")
	}
	fd, err := unix.MemfdCreate("full", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	checkOK(o.t, err)
	f := os.NewFile(uintptr(fd), "full")
	o.t.Cleanup(func() { f.Close() })
	checkOK(o.t, f.Truncate(oracleMemory))
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	checkOK(o.t, err)
	return f
}

func duplicate(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	checkOK(t, err)
	return os.NewFile(uintptr(fd), f.Name())
}

// noteSwitch follows the disk to its new file, if it switched.
func (o *oracle) noteSwitch(next string) {
	if n := o.s.Machine.disks.generations(); len(n) > 0 && n[0] > o.s.switched {
		o.s.switched = n[0]
		o.stats["switches of the disk"]++
		o.s.frozen, o.s.own = append(o.s.frozen, o.s.own), next
	}
}

// check compares a capture with its VMM's digests, and returns the known content of a machine made
// from it.
func (o *oracle) check(c *captured) *subject {
	o.t.Helper()
	set, err := extent.DecodePageSet(c.index, oracleMemory)
	checkOK(o.t, err)
	if set.Bytes() != c.res.Bytes {
		o.t.Errorf("it says that it has %d bytes, its index %d", c.res.Bytes, set.Bytes())
	}
	got := pagedigest.Digests{Memory: slices.Clone(o.s.digests)}
	for r := range set.Runs() {
		b := make([]byte, r.Length)
		_, err := c.memory.ReadAt(b, r.Offset)
		checkOK(o.t, err)
		for i := range r.Length / pagedigest.PageSize {
			got.Memory[r.Offset/pagedigest.PageSize+i] = pagedigest.Hash(b[i*pagedigest.PageSize:][:pagedigest.PageSize])
		}
	}
	next := &subject{base: append(o.s.base[:len(o.s.base):len(o.s.base)], memoryLayer{c.memory, set})}
	var sizes []int64
	if o.s.disk != nil {
		sizes = []int64{oracleDisk}
		next.disk = o.layDisk()
		blocks, err := pagedigest.Of(next.disk, oracleDisk, nil)
		checkOK(o.t, err)
		got.Disks = [][]uint64{blocks}
	}
	_, err = c.digest.Seek(0, 0)
	checkOK(o.t, err)
	want, err := pagedigest.Read(c.digest, oracleMemory, sizes...)
	checkOK(o.t, err)
	if err := pagedigest.Compare(got, want); err != nil {
		o.t.Fatalf("the image is not what the guest had: %v", err)
	}
	next.digests = want.Memory
	return next
}

// layDisk overlays the disk's previous content with its writes since, like the daemon's layers.
func (o *oracle) layDisk() *os.File {
	o.t.Helper()
	flat := o.file("disk")
	b, err := os.ReadFile(o.s.disk.Name())
	checkOK(o.t, err)
	for _, path := range o.s.frozen {
		f := o.again(path)
		d, err := overlay.Open(f, oracleDisk, nil)
		checkOK(o.t, err)
		checkOK(o.t, d.Allocated(func(off, n int64, zero bool) error {
			if zero {
				clear(b[off : off+n])
				return nil
			}
			_, err := f.ReadAt(b[off:off+n], off)
			return err
		}))
		f.Close()
	}
	_, err = flat.Write(b)
	checkOK(o.t, err)
	return flat
}

// restore makes a machine from a capture. Its memory must equal the source's.
func (o *oracle) restore(next *subject, c *captured, takeOver bool) {
	o.t.Helper()
	state, err := os.ReadFile(c.state.Name())
	checkOK(o.t, err)
	if len(next.base) > oracleMaxChain {
		next.base = o.flatten(next.base)
	}
	source := o.s
	o.start(next, state)
	o.stats["restores"]++
	var got []uint64
	for at := 0; at < oracleMemory; at += pagedigest.PageSize {
		got = append(got, pagedigest.Hash(o.s.mem.Linear()[at:][:pagedigest.PageSize]))
	}
	if err := pagedigest.Compare(pagedigest.Digests{Memory: got}, pagedigest.Digests{Memory: next.digests}); err != nil {
		o.t.Fatalf("a restored machine has another memory: %v", err)
	}
	if !takeOver {
		o.s.close()
		o.s = source
		return
	}
	o.tell("go on in the restored machine")
	source.close()
	_, err = o.s.guest.Resume()
	checkOK(o.t, err)
}

// rebase puts the disk on its flattened content, as the daemon does after a commit.
func (o *oracle) rebase(next *subject) {
	o.t.Helper()
	if next.disk == nil {
		return
	}
	o.tell("rebase")
	checkOK(o.t, o.s.Rebase([][]extent.Extent{o.flatBase(next.disk)}))
	o.s.disk, o.s.frozen = next.disk, nil
}

// step takes one random step.
func (o *oracle) step() {
	o.t.Helper()
	if o.random.IntN(3) > 0 {
		o.s.disturb(o.random)
	}
	if o.random.IntN(15) == 0 { // like a working set
		n := guestmem.PageSize * (1 + o.random.Int64N(64))
		at := o.random.Int64N((oracleMemory-n)/guestmem.PageSize) * guestmem.PageSize
		checkOK(o.t, o.s.mem.Populate(at, n, o.random.IntN(2) == 0))
	}
	if o.random.IntN(20) == 0 {
		o.save()
	}
	c := o.capture(o.someManner())
	if c == nil {
		return
	}
	next := o.check(c)
	if o.random.IntN(2) == 0 {
		o.rebase(next)
	}
	if n := o.random.IntN(12); n < 3 {
		o.restore(next, c, n == 0)
	}
	c.forget(o.s)
}

// save writes the whole machine, like the creation of a snapshot, and checks it.
func (o *oracle) save() {
	o.t.Helper()
	memory, digest := o.file("saved"), o.file("digest")
	var disks []*os.File
	var sizes []int64
	if o.s.disk != nil {
		disks, sizes = []*os.File{o.file("disk")}, []int64{oracleDisk}
	}
	checkOK(o.t, o.s.guest.Pause())
	_, err := o.s.SaveMemory(memory)
	checkOK(o.t, err)
	_, err = o.s.SaveDisks(disks)
	checkOK(o.t, err)
	checkOK(o.t, o.s.guest.SaveDigest(digest))
	_, err = o.s.guest.Resume()
	checkOK(o.t, err)
	var got pagedigest.Digests
	got.Memory, err = pagedigest.Of(memory, oracleMemory, nil)
	checkOK(o.t, err)
	for _, d := range disks {
		blocks, err := pagedigest.Of(d, oracleDisk, nil)
		checkOK(o.t, err)
		got.Disks = append(got.Disks, blocks)
	}
	_, err = digest.Seek(0, 0)
	checkOK(o.t, err)
	want, err := pagedigest.Read(digest, oracleMemory, sizes...)
	checkOK(o.t, err)
	if err := pagedigest.Compare(got, want); err != nil {
		o.t.Fatalf("what was saved is not what the guest had: %v", err)
	}
	checkOK(o.t, memory.Truncate(0))
	o.stats["saves"]++
}

// forget frees the files, unless a machine maps them.
func (c *captured) forget(s *subject) {
	for _, l := range s.base {
		if l.file == c.memory {
			return
		}
	}
	c.memory.Truncate(0)
	c.memory.Close()
}

// extents returns the image as the daemon describes it to a VMM.
func (m image) extents(t *testing.T) (out []extent.Extent) {
	t.Helper()
	from := m.owners()
	for first := 0; first < len(from); {
		end := first + 1
		for end < len(from) && from[end] == from[first] {
			end++
		}
		out = append(out, m.runExtents(t, from[first], int64(first)*guestmem.PageSize, int64(end)*guestmem.PageSize)...)
		first = end
	}
	return out
}

// runExtents returns a run of one layer's pages. Its holes are zeros.
func (m image) runExtents(t *testing.T, layer int, at, end int64) (out []extent.Extent) {
	if layer < 0 {
		return []extent.Extent{{Offset: at, Length: end - at}}
	}
	f := m[layer].file
	for at < end {
		data := seekTo(t, f, at, end, unix.SEEK_DATA)
		if data > at {
			out = append(out, extent.Extent{Offset: at, Length: data - at})
		}
		if hole := seekTo(t, f, data, end, unix.SEEK_HOLE); hole > data {
			out = append(out, extent.Extent{File: f, FileOffset: data, Offset: data, Length: hole - data})
			data = hole
		}
		at = data
	}
	return out
}

func seekTo(t *testing.T, f *os.File, at, end int64, whence int) int64 {
	t.Helper()
	if at >= end {
		return end
	}
	n, err := unix.Seek(int(f.Fd()), at, whence)
	if errors.Is(err, unix.ENXIO) {
		return end
	}
	checkOK(t, err)
	return min(n, end)
}

// owners returns each page's topmost layer, or -1.
func (m image) owners() []int {
	from := make([]int, oracleMemory/guestmem.PageSize)
	for i := range from {
		from[i] = -1
	}
	for i, l := range m {
		for r := range l.has.Runs() {
			for p := range r.Length / guestmem.PageSize {
				from[r.Offset/guestmem.PageSize+p] = i
			}
		}
	}
	return from
}

// flatten merges many layers into one.
func (o *oracle) flatten(m image) image {
	o.t.Helper()
	flat := memoryLayer{o.file("flat"), extent.NewPageSet(oracleMemory)}
	checkOK(o.t, flat.file.Truncate(oracleMemory))
	b := make([]byte, guestmem.PageSize)
	for p, layer := range m.owners() {
		if layer < 0 {
			continue
		}
		at := int64(p) * guestmem.PageSize
		_, err := m[layer].file.ReadAt(b, at)
		checkOK(o.t, err)
		_, err = flat.file.WriteAt(b, at)
		checkOK(o.t, err)
		flat.has.Add(at, guestmem.PageSize)
	}
	return image{flat}
}

// firstCaptures repeats the sequence of a former bug before the random ones: rounds, which leave
// pages protected, and then a limit that needs none; a refused one between.
func (o *oracle) firstCaptures() {
	o.t.Helper()
	o.waitWritten(2 << 20)
	for i, limit := range []time.Duration{0, 2 * time.Second, time.Nanosecond, 2 * time.Second, 0} {
		c := o.capture(manner{live: true, digest: true, limit: limit, buffer: 4 * oracleMemory}) // all of it may remain
		if c == nil {
			continue
		}
		o.check(c)
		if i == 0 && c.res.Rounds == 0 && c.res.Mechanism != "none" {
			o.t.Errorf("the first one needed no round: %+v", c.res)
		}
		if limit == 2*time.Second && (c.res.Rounds > 0 || c.res.Bytes < 2<<20) {
			o.t.Errorf("within %s: %+v, want no round and at least 2 MiB", limit, c.res)
		}
	}
	o.save()
	for _, how := range []manner{
		{live: true, fullMemory: true}, {unwrittenIndex: true}, {digest: true}, {digest: true, buffer: 64 << 10}, {digest: true, live: true},
	} {
		if c := o.capture(how); c != nil {
			o.restore(o.check(c), c, false)
		}
	}
}

// waitWritten waits until the guest has written that much memory.
func (o *oracle) waitWritten(want int64) {
	o.t.Helper()
	for deadline := time.Now().Add(bootLimit); ; time.Sleep(2 * time.Millisecond) {
		var own int64
		checkOK(o.t, o.s.mem.PrivateDirty(func(_, length int64) error { own += length; return nil }))
		if own >= want {
			return
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("the guest has written to %d bytes within %s, want %d", own, bootLimit, want)
		}
	}
}
