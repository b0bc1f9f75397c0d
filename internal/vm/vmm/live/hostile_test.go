package live

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/forkd/forkd/internal/vm/boot"
)

// ruleBreakers are drivers of the entropy device that violate the ring's rules. Each gets a device
// that is set up but not started, with an offered chain of one good buffer in a queue of 8.
var ruleBreakers = []struct {
	name string
	do   func(ring)
}{
	{"queue of size 0", func(r ring) { r.size = 0; restart(r) }},
	{"queue of size 3", func(r ring) { r.size = 3; restart(r) }},
	{"queue larger than the device's", func(r ring) { r.size = 16; restart(r) }},
	{"queue of size 2^32-1", func(r ring) { r.size = 0xffffffff; restart(r) }},
	{"table behind memory", func(r ring) { r.desc = bareEnd; restart(r) }},
	{"table across the end of memory", func(r ring) { r.desc = bareEnd - 64; restart(r) }},
	{"table in a device window", func(r ring) { r.desc = boot.MMIOAddr(0); restart(r) }},
	{"table that wraps", func(r ring) { r.desc = ^uint64(15); restart(r) }},
	{"table at 1 TiB", func(r ring) { r.desc = 1 << 40; restart(r) }},
	{"table unaligned", func(r ring) { r.desc += 8; restart(r) }},
	{"available ring unaligned", func(r ring) { r.avail++; restart(r) }},
	{"available ring that wraps", func(r ring) { r.avail = ^uint64(1); restart(r) }},
	{"available ring across the end of memory", func(r ring) { r.avail = bareEnd - 4; restart(r) }},
	{"used ring unaligned", func(r ring) { r.used += 2; restart(r) }},
	{"used ring that wraps", func(r ring) { r.used = ^uint64(3); restart(r) }},
	{"used ring across the end of memory", func(r ring) { r.used = bareEnd - 8; restart(r) }},
	{"used ring over the table", func(r ring) { r.used = r.desc + 16; restart(r) }},
	{"available index a queue ahead", func(r ring) { start(r); r.op(opStore16, r.avail+2, 9); r.kick() }},
	{"available index half way round", func(r ring) { start(r); r.op(opStore16, r.avail+2, 0x8000); r.kick() }},
	{"head out of range", func(r ring) { start(r); r.offer(8, 1); r.kick() }},
	{"head 65535", func(r ring) { start(r); r.offer(0xffff, 1); r.kick() }},
	{"next out of range", func(r ring) { r.put(0, bareBuffers, 16, flagWrite|flagNext, 8); run(r) }},
	{"next is itself", func(r ring) { r.put(0, bareBuffers, 16, flagWrite|flagNext, 0); run(r) }},
	{"loop of two", func(r ring) {
		r.put(0, bareBuffers, 16, flagWrite|flagNext, 1)
		r.put(1, bareBuffers, 16, flagWrite|flagNext, 0)
		run(r)
	}},
	{"loop of empty buffers", func(r ring) { r.put(0, bareBuffers, 0, flagWrite|flagNext, 0); run(r) }},
	{"buffer behind memory", func(r ring) { r.put(0, bareEnd, 16, flagWrite, 0); run(r) }},
	{"buffer across the end of memory", func(r ring) { r.put(0, bareEnd-8, 16, flagWrite, 0); run(r) }},
	{"buffer in a device window", func(r ring) { r.put(0, boot.MMIOAddr(0), 16, flagWrite, 0); run(r) }},
	{"buffer that wraps", func(r ring) { r.put(0, ^uint64(0), 2, flagWrite, 0); run(r) }},
	{"buffer of 4 GiB", func(r ring) { r.put(0, 0, 0xffffffff, flagWrite, 0); run(r) }},
	{"chain of more than the limit", func(r ring) {
		for i := range 8 {
			r.put(i, bareBuffers, 16<<20, flagWrite|flagNext, uint16(i+1))
		}
		run(r)
	}},
	{"readable after writable", func(r ring) {
		r.put(0, bareBuffers, 16, flagWrite|flagNext, 1)
		r.put(1, bareBuffers, 16, 0, 0)
		run(r)
	}},
	{"readable buffer for entropy", func(r ring) { r.put(0, bareBuffers, 16, 0, 0); run(r) }},
	{"indirect table of no entries", func(r ring) { r.put(0, bareBuffers, 0, flagIndirect, 0); run(r) }},
	{"indirect table of one and a bit", func(r ring) { r.put(0, bareBuffers, 17, flagIndirect, 0); run(r) }},
	{"indirect table larger than the queue", func(r ring) { r.put(0, bareBuffers, 9*16, flagIndirect, 0); run(r) }},
	{"indirect table of 4 GiB", func(r ring) { r.put(0, bareBuffers, 0xfffffff0, flagIndirect, 0); run(r) }},
	{"indirect table behind memory", func(r ring) { r.put(0, bareEnd, 16, flagIndirect, 0); run(r) }},
	{"indirect table that wraps", func(r ring) { r.put(0, ^uint64(15), 32, flagIndirect, 0); run(r) }},
	{"indirect with next", func(r ring) {
		r.putAt(bareBuffers, 0, bareBuffers+64, 16, flagWrite, 0)
		r.put(0, bareBuffers, 16, flagIndirect|flagNext, 1)
		run(r)
	}},
	{"indirect in indirect", func(r ring) {
		r.putAt(bareBuffers, 0, bareBuffers, 16, flagIndirect, 0)
		r.put(0, bareBuffers, 16, flagIndirect, 0)
		run(r)
	}},
	{"loop in an indirect table", func(r ring) {
		r.putAt(bareBuffers, 0, bareBuffers+64, 16, flagWrite|flagNext, 0)
		r.put(0, bareBuffers, 16, flagIndirect, 0)
		run(r)
	}},
	{"status goes back", func(r ring) { start(r); r.write(regStatus, statusStarted) }},
	{"status out of order", func(r ring) { r.write(regStatus, 0); r.write(regStatus, 4) }},
}

// start starts the device with the queue unchanged.
func start(r ring) { r.write(regStatus, statusDriverOK) }

// restart programs the queue again, then starts the device. It first clears the ready bit of the
// good queue, because otherwise the layout would be locked.
func restart(r ring) {
	r.write(regQueueReady, 0)
	r.tell()
	start(r)
}

// run starts the device and offers chain 0.
func run(r ring) {
	start(r)
	r.offer(0, 1)
	r.kick()
}

// TestRuleBreakersBreakTheirDevice makes one guest break the rules in every way, one after the
// other. After each the device needs a reset, and then serves again.
func TestRuleBreakersBreakTheirDevice(t *testing.T) {
	s := newScript()
	w := s.device(slotRNG)
	r := w.ring(0, 8)
	goodBuffer := func() {
		w.begin(featVersion1 | featIndirect)
		r.clear()
		r.put(0, bareBuffers, 16, flagWrite, 0)
		r.tell()
	}
	for _, c := range ruleBreakers {
		goodBuffer()
		c.do(r)
		w.awaitBroken()
		w.read(regStatus)
		goodBuffer()
		run(r)
		r.awaitUsed()
		s.op(opLoad32, r.used, 0)
		w.read(regStatus)
	}
	s.finish()
	v := bootBare(t, s, nil)
	v.waitMark()
	got := v.results(3 * len(ruleBreakers))
	for i, c := range ruleBreakers {
		broken, used, status := got[3*i], got[3*i+1], got[3*i+2]
		if broken&statusNeedsReset == 0 {
			t.Errorf("%s: device status is %#x, want a wish for reset", c.name, broken)
		}
		if used>>16 != 1 || status != statusDriverOK {
			t.Errorf("%s: after a reset the device has used %d chains and status %#x, want 1 and %#x", c.name, used>>16, status, statusDriverOK)
		}
	}
	v.checkSound()
}

const (
	blkIn, blkOut, blkFlush, blkGetID, blkDiscard, blkZeroes = 0, 1, 4, 8, 11, 13

	blkHeader  = bareBuffers
	blkData    = bareBuffers + 0x1000
	blkStatus  = bareBuffers + 0x800000
	blkNoReply = 0xee // value of the status byte before the device writes it
)

// diskRequests are requests that a disk must answer with a status, whatever their content.
var diskRequests = []struct {
	name   string
	slot   int
	op     uint32
	sector uint64
	length uint32
	write  uint16 // direction of the data
	want   uint64
}{
	{"read", slotReadOnly, blkIn, 0, 512, flagWrite, 0},
	{"write to a read-only disk", slotReadOnly, blkOut, 0, 512, 0, 1},
	{"write without data to a read-only disk", slotReadOnly, blkOut, 0, 0, 0, 1},
	{"discard on a read-only disk", slotReadOnly, blkDiscard, 0, 16, 0, 2},
	{"write zeroes to a read-only disk", slotReadOnly, blkZeroes, 0, 16, 0, 2},
	{"flush of a read-only disk", slotReadOnly, blkFlush, 0, 0, 0, 0},
	{"read behind the end", slotDisk, blkIn, bareDiskSize / 512, 512, flagWrite, 1},
	{"read across the end", slotDisk, blkIn, bareDiskSize/512 - 1, 1024, flagWrite, 1},
	{"write behind the end", slotDisk, blkOut, bareDiskSize / 512, 512, 0, 1},
	{"write across the end", slotDisk, blkOut, bareDiskSize/512 - 1, 1024, 0, 1},
	{"sector number that wraps in bytes", slotDisk, blkIn, 1 << 55, 512, flagWrite, 1},
	{"last sector number there is", slotDisk, blkOut, ^uint64(0), 512, 0, 1},
	{"read of half a sector", slotDisk, blkIn, 0, 100, flagWrite, 1},
	{"write of a sector and a bit", slotDisk, blkOut, 0, 513, 0, 1},
	{"read of more than the disk", slotDisk, blkIn, 0, 4 << 20, flagWrite, 1},
	{"unknown request", slotDisk, 77, 0, 512, flagWrite, 2},
	{"request 2^32-1", slotDisk, 0xffffffff, 0, 512, 0, 2},
	{"identity into one byte", slotDisk, blkGetID, 0, 1, flagWrite, 0},
	{"discard without ranges", slotDisk, blkDiscard, 0, 0, 0, 1},
	{"discard of a garbage range", slotDisk, blkDiscard, 0, 16, 0, 1},
	{"discard of half a range", slotDisk, blkDiscard, 0, 24, 0, 1},
	{"discard of too many ranges", slotDisk, blkDiscard, 0, 17 * 16, 0, 1},
	{"write zeroes to a garbage range", slotDisk, blkZeroes, 0, 16, 0, 1},
}

// request puts a request for a disk into three descriptors.
func (r ring) request(op uint32, sector uint64, length uint32, write uint16) {
	r.op(opStore64, blkHeader, uint64(op))
	r.op(opStore64, blkHeader+8, sector)
	r.op(opStore8, blkStatus, blkNoReply)
	r.put(0, blkHeader, 16, flagNext, 1)
	r.put(1, blkData, length, write|flagNext, 2)
	r.put(2, blkStatus, 1, flagWrite, 0)
}

func TestDiskAnswersEveryRequest(t *testing.T) {
	s := newScript()
	// As ranges: the maximum number of sectors, without flags.
	s.data[blkData] = bytes.Repeat(append(bytes.Repeat([]byte{0xff}, 12), 0, 0, 0, 0), 512)
	for _, c := range diskRequests {
		r := s.device(c.slot).ring(0, 64)
		r.begin(featVersion1)
		r.clear()
		s.repeat(opCopy, 17*16, blkData, blkData+0x1000, 0) // an earlier read went there
		r.request(c.op, c.sector, c.length, c.write)
		r.tell()
		run(r)
		r.awaitUsed()
		s.op(opLoad8, blkStatus, 0)
		r.read(regStatus)
	}
	s.finish()
	v := bootBare(t, s, nil)
	v.waitMark()
	got := v.results(2 * len(diskRequests))
	for i, c := range diskRequests {
		if got[2*i] != c.want || got[2*i+1] != statusDriverOK {
			t.Errorf("%s: answer %d, device status %#x; want %d and %#x", c.name, got[2*i], got[2*i+1], c.want, statusDriverOK)
		}
	}
	if st, err := os.Stat(v.disks[slotDisk]); err != nil || st.Size() != bareDiskSize {
		t.Errorf("the disk has %d bytes after all this (%v), want %d", st.Size(), err, bareDiskSize)
	}
	v.checkSound()
}

// TestDiskWritesItsOwnRings reads the disk into the rings of the request itself, many times, and
// restarts after each.
func TestDiskWritesItsOwnRings(t *testing.T) {
	s := newScript()
	r := s.device(slotDisk).ring(0, 64)
	for i, target := range []uint64{r.desc, r.avail, r.used, blkHeader, blkStatus - 511, r.desc - 256, bareScript - 0x1000} {
		from := s.here()
		r.begin(featVersion1)
		r.clear()
		r.request(blkIn, 0, 512, flagWrite)
		r.put(1, target, 512, flagWrite|flagNext, 2)
		r.tell()
		run(r)
		r.kick()
		r.offer(0, uint16(i+2))
		r.kick()
		s.repeat(opSpin, 2000, 0, 0, 0)
		s.loop(from, 30)
	}
	s.finish()
	v := bootBare(t, s, nil)
	v.waitMark()
	v.checkSound()
}

// TestResetsInMidUse takes devices away while they work: by status, by queue, and by an immediate
// restart.
func TestResetsInMidUse(t *testing.T) {
	s := newScript()
	disk := s.device(slotDisk).ring(0, 64)
	from := s.here()
	for _, end := range []func(){
		func() { disk.write(regStatus, 0) },
		func() { disk.write(regQueueSel, 0); disk.write(regQueueReady, 0) },
		func() { disk.write(regStatus, 128) },
	} {
		disk.begin(featVersion1)
		disk.clear()
		disk.request(blkOut, 0, bareDiskSize, 0)
		disk.tell()
		run(disk)
		end()
		disk.kick()
	}
	s.loop(from, 60)
	s.finish()
	v := bootBare(t, s, nil)
	v.waitMark()
	v.checkSound()
}

func TestKickStorm(t *testing.T) {
	s := newScript()
	rng := s.device(slotRNG).ring(0, 8)
	rng.begin(featVersion1)
	rng.clear()
	rng.put(0, bareBuffers, 4096, flagWrite, 0)
	rng.tell()
	start(rng)
	from := s.here()
	s.op(opAdd16, rng.avail+2, 1) // all entries of the ring name chain 0
	for slot := range slotBalloon + 1 {
		for _, q := range []uint64{0, 1, 2, 3, 0xffff, 0xffffffff} {
			s.op(opStore32, s.device(slot).at(regQueueNotify), q)
		}
	}
	s.loop(from, 200)
	s.op(opStore32, bareMark, 1)
	again := s.here() // the storm continues while the machine is paused and saved
	for slot := range slotBalloon + 1 {
		s.repeat(opStore32, 50, s.device(slot).at(regQueueNotify), 0, 0)
	}
	s.op(opAdd16, bareBeat, 1)
	s.loop(again, 0)
	v := bootBare(t, s, nil)
	v.waitMark()
	v.checkSound()
}

// accesses are the widths of loads and stores.
var accesses = []struct{ load, store opcode }{{opLoad8, opStore8}, {opLoad16, opStore16}, {opLoad32, opStore32}, {opLoad64, opStore64}}

// TestEveryRegisterInEveryWidth reads and writes all of every window, aligned and not, and across
// its end.
func TestEveryRegisterInEveryWidth(t *testing.T) {
	s := newScript()
	for slot := range slotBalloon + 2 { // one more than exist
		base := boot.MMIOAddr(slot)
		for _, a := range accesses {
			s.repeat(a.load, 0x108, base, 0, 1)
			s.repeat(a.load, 32, base+0xfe8, 0, 1)
			s.repeat(a.store, 0x108, base, 0xffffffffffffffff, 1)
			s.repeat(a.store, 0x108, base+0x107, 0, ^uint64(0)) // downwards: resets in between
			s.repeat(a.store, 32, base+0xfe8, 0x5555555555555555, 1)
		}
	}
	for _, at := range []uint64{0xc0000000, 0xfffffff8, 0xfec00000, 0xfee00000} {
		for _, a := range accesses {
			s.repeat(a.load, 64, at, 0, 0)
		}
	}
	for slot := range slotBalloon + 1 {
		s.device(slot).write(regStatus, 0)
		s.device(slot).read(regStatus)
	}
	s.finish()
	v := bootBare(t, s, nil)
	v.waitMark()
	v.checkSound()
}

// TestGarbageInInterruptControllers saves and restores a guest's garbage in them.
func TestGarbageInInterruptControllers(t *testing.T) {
	s := newScript()
	for pin := range uint64(24) {
		for half, v := range []uint64{0xffffffff &^ (1 << 16), 0xa5a5a5a5} {
			s.op(opStore32, 0xfec00000, 0x10+2*pin+uint64(half))
			s.op(opStore32, 0xfec00010, v)
		}
	}
	for reg := uint64(0x80); reg < 0x400; reg += 0x10 {
		if reg != 0x300 && reg != 0x310 { // commands: INIT to itself would end the script
			s.op(opStore32, 0xfee00000+reg, 0xffffffff)
		}
	}
	s.finish()
	v := bootBare(t, s, nil)
	v.waitMark()
	v.checkSound()
}

// endings are the values that end a VM at a port, by design.
func endings(port uint16, v uint64) bool {
	return port == boot.ResetPort && byte(v) == boot.ResetValue || port == boot.SleepPort && byte(v) == boot.SleepS5 || port == portI8042 && byte(v) == i8042Reset
}

// TestPortsAreHarmless writes garbage to every port. To the ports that can end the VM it writes
// every value, except the ones that do.
func TestPortsAreHarmless(t *testing.T) {
	s := newScript()
	const garbage = 0xa5a5a5a5
	s.repeat(opOut8, 1<<13, 0, garbage, 1)
	s.repeat(opOut32, 1<<10, 1<<13, garbage, 47)
	s.repeat(opIn8, 1<<12, 0, 0, 1)
	for _, in := range []opcode{opIn16, opIn32} {
		s.repeat(in, 1<<10, 0, 0, 63)
	}
	for _, port := range []uint16{boot.ResetPort, boot.SleepPort, portI8042} {
		for v := range uint64(256) {
			if !endings(port, v) {
				s.op(opOut8, uint64(port), v)
			}
		}
	}
	for _, port := range []uint64{boot.SerialPort, boot.SleepPort, 0x80, 0xffff} {
		s.repeat(opInString, 3000, port, bareBuffers, 0)
	}
	for reg := range uint64(8) { // the console with every value
		for _, v := range []uint64{0, 0xff, 0x80, 0x13, 0x5a} {
			s.op(opOut8, boot.SerialPort+reg, v)
			s.op(opIn8, boot.SerialPort+reg, 0)
		}
	}
	s.finish()
	v := bootBare(t, s, nil)
	v.waitMark()
	v.checkSound()
}

func TestBareEndings(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*script)
		want string
	}{
		{"power off", func(s *script) { s.op(opPowerOff, 0, 0) }, "poweroff"},
		{"reset", func(s *script) { s.op(opOut8, boot.ResetPort, boot.ResetValue) }, "reset"},
		{"reset by the keyboard controller", func(s *script) { s.op(opOut8, portI8042, i8042Reset) }, "reset"},
		{"triple fault", func(s *script) { s.op(opTripleFault, 0, 0) }, "fault"},
		{"jump into nowhere", func(s *script) { s.op(opStore64, bootPDPT, 0); s.op(opWriteMSR, 0xc0000080, 0) }, "fault"},
		{"unknown register of the CPU", func(s *script) { s.op(opWriteMSR, 0xdeadbeef, 1) }, "fault"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			c.do(s)
			s.finish()
			e := bootBare(t, s, nil).waitEnd()
			if fmt.Sprint(e.Kind) != c.want || e.Reason == "" {
				t.Fatalf("ended with %+v, want %s and a reason", e, c.want)
			}
		})
	}
}
