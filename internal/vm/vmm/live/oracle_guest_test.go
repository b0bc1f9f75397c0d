package live

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// The oracle's guest under KVM is a bare guest. In a loop it writes to a part of its memory, makes
// its disk and its entropy device read and write the rest, and reports some of it as free. The
// values and addresses are in its script, which is changed while it is paused.
const (
	oracleBeat    = 0x5f0000
	oracleRings   = 0x600000
	oracleHeaders = 0x700000 // of the disk's requests
	oracleData    = 0x710000 // 64 KiB per request
	oracleWindow  = 0x800000 // start of the memory that the guest writes itself

	oracleRequests = 4 // concurrent requests; the last discards or zeroes
)

// knob is the address of an operation of the script that the test changes.
type knob uint64

// oracleScript is the script and its changeable places.
type oracleScript struct {
	*script
	stores   []knob // to the guest's own memory
	requests []requestKnobs
	reports  ring
	free     [2]knob // address and length of a report
}

type requestKnobs struct{ op, sector, shape, count knob }

func newOracleScript(disk bool) *oracleScript {
	s := &oracleScript{script: newScript()}
	var rings []ring
	entropy := 0
	if disk {
		rings, entropy = append(rings, s.diskRing()), 1
	}
	rings = append(rings, s.entropyRing(entropy+1))
	s.reports = s.reportsRing(entropy + 3)
	rings = append(rings, s.reports)
	top := s.here()
	s.op(opAdd16, oracleBeat, 1)
	for range 3 {
		s.stores = append(s.stores, knob(s.here()))
		s.repeat(opAdd16, 1, oracleWindow, 1, 0)
	}
	if disk {
		s.requestsOf(rings[0])
	}
	s.free[0] = knob(s.here())
	s.op(opStore64, s.reports.desc, oracleWindow)
	s.free[1] = knob(s.here())
	s.op(opStore64, s.reports.desc+8, flagWrite<<32) // of no bytes
	for _, r := range rings {
		s.op(opAdd16, r.avail+2, uint64(r.size))
		r.kick()
	}
	for _, r := range rings {
		r.awaitAll()
	}
	s.loop(top, 0xffffffff)
	return s
}

func (s *oracleScript) ring(slot int, size uint32) ring {
	at := oracleRings + uint64(slot)<<16
	return ring{s.device(slot), 0, size, at, at + 0x4000, at + 0x8000}
}

func (s *oracleScript) diskRing() ring {
	r := s.ring(0, oracleRequests)
	r.begin(featVersion1 | featIndirect | 1<<13 | 1<<14) // discard and zeroes
	r.clear()
	s.op(opStore16, r.avail+2, 0)
	// Chains of three do not fit a queue of four: the ring has only the heads, and the chains are
	// in their own tables.
	for i := range oracleRequests {
		table := r.desc + 0x1000 + uint64(i)*64
		r.put(i, table, 3*16, flagIndirect, 0)
		r.putAt(table, 0, s.header(i), 16, flagNext, 1)
		r.putAt(table, 1, s.data(i), 512, flagNext, 2)
		r.putAt(table, 2, s.header(i)+32, 1, flagWrite, 0)
		s.op(opStore16, r.avail+4+uint64(2*i), uint64(i))
	}
	r.tell()
	r.write(regStatus, statusDriverOK)
	return r
}

func (s *oracleScript) header(i int) uint64 { return oracleHeaders + uint64(i)*64 }
func (s *oracleScript) data(i int) uint64   { return oracleData + uint64(i)<<16 }

func (s *oracleScript) entropyRing(slot int) ring {
	r := s.ring(slot, 2)
	r.begin(featVersion1)
	r.clear()
	for i := range 2 {
		r.put(i, oracleData+uint64(8+i)<<16, 5000, flagWrite, 0)
		s.op(opStore16, r.avail+4+uint64(2*i), uint64(i))
	}
	r.tell()
	r.write(regStatus, statusDriverOK)
	return r
}

func (s *oracleScript) reportsRing(slot int) ring {
	r := s.ring(slot, 1)
	r.q = 4
	r.begin(featVersion1 | 1<<5)
	r.clear()
	s.op(opStore16, r.avail+4, 0)
	r.tell()
	r.write(regStatus, statusDriverOK)
	return r
}

// requestsOf writes the disk's requests again, with other data.
func (s *oracleScript) requestsOf(r ring) {
	for i := range oracleRequests {
		var k requestKnobs
		k.op = knob(s.here())
		s.op(opStore32, s.header(i), blkIn)
		k.sector = knob(s.here())
		s.op(opStore64, s.header(i)+8, 0)
		k.shape = knob(s.here())
		s.op(opStore64, r.desc+0x1000+uint64(i)*64+16+8, 512|flagNext<<32|2<<48)
		k.count = knob(s.here())
		if i == oracleRequests-1 {
			s.op(opStore64, s.data(i)+8, 8) // sectors of a discard, which begins at sector data
		} else {
			s.repeat(opAdd16, 8, s.data(i), 1, 512)
		}
		s.requests = append(s.requests, k)
	}
}

// kvmWorld creates bare guests.
type kvmWorld struct {
	t    *testing.T
	disk bool
}

func (w kvmWorld) restore(memory []extent.Extent, disks []vmm.Disk, state []byte) *subject {
	w.t.Helper()
	script := newOracleScript(w.disk)
	g := newShell(w.t, vmspec.Shape{MemoryMiB: oracleMiB, VCPUs: 1, Disks: len(disks)})
	if state == nil {
		checkOK(w.t, g.Boot(vmm.BootConfig{Kernel: memoryFile(w.t, script.kernel()), CID: 3, Disks: disks}))
	} else {
		_, err := g.Restore(vmm.RestoreConfig{
			Memory: memory, State: memoryFile(w.t, state), Disks: disks, CID: 3, Prepare: true,
			Watch: len(memory)%2 == 0, // as when a working set is measured
		})
		checkOK(w.t, err)
	}
	return &subject{
		Machine: g.Machine, guest: g.Machine, close: func() { g.Close() },
		disturb: func(random *rand.Rand) { w.disturb(g, script, random) },
	}
}

// disturb makes the guest write elsewhere and at another rate.
func (w kvmWorld) disturb(g *guestVM, s *oracleScript, random *rand.Rand) {
	w.t.Helper()
	checkOK(w.t, g.Pause())
	turn := func(k knob, count uint32, addr, value, stride uint64) {
		b := binary.LittleEndian.AppendUint32(nil, count)
		b = binary.LittleEndian.AppendUint64(b, addr)
		b = binary.LittleEndian.AppendUint64(b, value)
		b = binary.LittleEndian.AppendUint64(b, stride)
		checkOK(w.t, g.mem.WriteAt(b, uint64(k)+4))
	}
	for _, k := range s.stores {
		stride := uint64(2) << random.IntN(14) // from every word to every fourth page
		room := uint64(oracleMemory-oracleWindow) / stride
		n := 1 + random.Uint64N(min(room-1, 1<<random.IntN(12)))
		turn(k, uint32(n), oracleWindow+random.Uint64N(room-n+1)*stride, 1, stride)
	}
	free, bytes := random.Uint64N(oracleMemory/guestmem.PageSize-oracleWindow/guestmem.PageSize-64), uint64(0)
	if random.IntN(2) == 0 {
		bytes = guestmem.PageSize * (1 + random.Uint64N(64))
	}
	turn(s.free[0], 1, s.reports.desc, oracleWindow+free*guestmem.PageSize, 0)
	turn(s.free[1], 1, s.reports.desc+8, bytes|flagWrite<<32, 0)
	for i, k := range s.requests {
		sectors := 1 + random.Uint64N(60)
		sector := random.Uint64N(oracleDisk/512 - sectors)
		op, shape := uint64(blkOut), sectors*512|flagNext<<32|2<<48
		switch {
		case i == oracleRequests-1: // its data is a segment
			op, shape = [2]uint64{blkDiscard, blkZeroes}[random.IntN(2)], 16|flagNext<<32|2<<48
			turn(k.count, 1, s.data(i)+8, sectors|op/blkZeroes*random.Uint64N(2)<<32, 0) // zeroes may unmap
			checkOK(w.t, g.mem.WriteAt(binary.LittleEndian.AppendUint64(nil, sector), s.data(i)))
		case random.IntN(3) == 0:
			op, shape = blkIn, sectors*512|(flagNext|flagWrite)<<32|2<<48
		}
		turn(k.op, 1, s.header(i), op, 0)
		turn(k.sector, 1, s.header(i)+8, sector, 0)
		turn(k.shape, 1, oracleRings+0x1000+uint64(i)*64+16+8, shape, 0)
	}
	_, err := g.Resume()
	checkOK(w.t, err)
}

// Hundreds of captures of a guest under KVM, with busy devices.
func TestCapturesOfAGuestAreWhatItHad(t *testing.T) {
	kvmtest.Require(t)
	seed := kvmtest.Seed(t)
	total := map[string]int{}
	began := time.Now()
	for i := range uint64(4) {
		random := kvmtest.Random(seed, i)
		disk := i%2 == 0
		o := newOracle(t, random, kvmWorld{t, disk}, disk)
		if i < 2 {
			o.writeMuch()
			o.save()
			o.firstCaptures()
		}
		for range 20 {
			o.step()
		}
		o.checkAlive()
		for what, n := range o.stats {
			total[what] += n
		}
	}
	t.Logf("%v in %s", total, time.Since(began).Round(time.Second))
	for _, what := range []string{"captures", "refused", "failed", "live without a round", "live with rounds", "diff", "diff with rounds", "beyond the buffer", "restores", "saves", "switches of the disk"} {
		if total[what] == 0 {
			t.Errorf("no such case: %s", what)
		}
	}
}

// writeMuch makes the guest write to 4 MiB.
func (o *oracle) writeMuch() {
	o.t.Helper()
	checkOK(o.t, o.s.Pause())
	s := newOracleScript(o.s.disk != nil)
	b := binary.LittleEndian.AppendUint32(nil, 1024)
	checkOK(o.t, o.s.mem.WriteAt(b, uint64(s.stores[0])+4))
	b = binary.LittleEndian.AppendUint64(nil, guestmem.PageSize)
	checkOK(o.t, o.s.mem.WriteAt(b, uint64(s.stores[0])+24))
	_, err := o.s.Resume()
	checkOK(o.t, err)
}

// checkAlive verifies that the guest runs, and that no device has broken.
func (o *oracle) checkAlive() {
	o.t.Helper()
	beat := func() uint32 { w, _ := o.s.mem.LoadUint32(oracleBeat); return w }
	was := beat()
	for deadline := time.Now().Add(bootLimit); beat() == was; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatal("the guest stands still")
		}
	}
	for i, s := range o.s.devices.slots {
		if s.transport.NeedsReset() {
			o.t.Errorf("device %d is broken", i)
		}
	}
}
