package live

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/vm/boot"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// The ways in which a restored guest may begin. The names are in paths of sockets, which must be
// short.
var starts = []struct {
	name           string
	prepare, gated bool
}{{"at once", false, false}, {"prepared", true, false}, {"gated", false, true}, {"both", true, true}}

// startBare restores a bare guest into a shell and starts it in one of the ways, after the wait of
// a waiting one. held is called before it begins.
func startBare(t *testing.T, v *bareVM, s saved, prepare, gated bool, wait time.Duration, held func()) {
	t.Helper()
	c := s.blueprint(t, v.Machine, 3, v.attachHost(nil)...)
	c.Prepare = prepare
	gate := shutGate(t)
	if gated {
		c.Gate = gate.File()
	}
	if !prepare && !gated {
		held()
	}
	_, err := v.Restore(c)
	checkOK(t, err)
	if !prepare && !gated {
		return
	}
	time.Sleep(wait) // elapses: the guest's time must not count it
	held()
	checkOK(t, gate.Open())
	_, err = v.Resume()
	checkOK(t, err)
}

// Local APIC and I/O APIC (Intel SDM 3A §11.4; 82093AA §3).
const (
	lapicSpurious = 0xfee000f0
	lapicRequests = 0xfee00200 // 32 vectors in each 16 bytes
	ioapicIndex   = 0xfec00000
	ioapicWindow  = 0xfec00010
	genIDVector   = 0x45
)

// route enables the generation ID's interrupt for vCPU 0, as genIDVector.
func (s *script) route() {
	s.op(opStore32, lapicSpurious, 0x1ff)
	for i, half := range []uint64{0, genIDVector} { // the mask is in the second
		s.op(opStore32, ioapicIndex, uint64(0x11+2*boot.GenIDIRQ-i))
		s.op(opStore32, ioapicWindow, half)
	}
}

func TestTheNewGenerationIsPendingAtTheFirstInstruction(t *testing.T) {
	script := newScript()
	script.route()
	script.op(opStore32, bareMark, 1)
	script.repeat(opCountUntil, 1, lapicRequests+genIDVector/32*16, 1<<(genIDVector%32), bareBeat)
	script.op(opStore32, bareMark, 2)
	script.op(opHalt, 0, 0)
	parent := bootBare(t, script, nil)
	parent.waitMark()
	parent.waitBeat()
	s := parent.save()
	was := parent.word(bareBeat)
	for _, c := range starts {
		t.Run(c.name, func(t *testing.T) {
			v := newBare(t)
			v.disks = parent.disks
			startBare(t, v, s, c.prepare, c.gated, 0, func() {
				var apic kvm.LAPIC
				checkOK(t, v.cpus.all[0].cpu.LAPIC(&apic))
				waits := v.Status().State != vmm.StateShell
				if pending := apic[lapicRequests&0xfff+genIDVector/32*16+genIDVector%32/8]&(1<<(genIDVector%8)) != 0; pending != waits {
					t.Errorf("it is %s, and the interrupt is pending: %v", v.Status().State, pending)
				}
			})
			v.until("the interrupt", func() bool { return v.word(bareMark) == 2 })
			// It may have been stopped between its check and the count.
			if n := v.word(bareBeat) - was; n > 1 {
				t.Errorf("the guest looked %d times before it found the interrupt", n)
			}
		})
	}
	if parent.word(bareMark) != 1 {
		t.Error("the source was interrupted")
	}
}

// long reads 8 bytes of a guest's memory.
func (v *bareVM) long(gpa uint64) uint64 {
	v.t.Helper()
	var b [8]byte
	checkOK(v.t, v.mem.ReadAt(b[:], gpa))
	return binary.LittleEndian.Uint64(b[:])
}

func TestTheTimeStampCounterGoesOnWhereItStood(t *testing.T) {
	script := newScript()
	script.op(opKeepTSC, bareBeat, 0)
	parent := newBareShaped(t, vmspec.Shape{MemoryMiB: bareMiB, VCPUs: 2, Disks: bareDisks}, consoleMax)
	parent.run(script, nil)
	parent.waitBeat()
	checkOK(t, parent.Pause())
	// The second vCPU's counter differs by less than a second.
	khz, err := parent.cpus.all[0].cpu.TSCKHz()
	checkOK(t, err)
	const apartMS = 300
	offset, err := parent.cpus.all[1].cpu.TSCOffset()
	checkOK(t, err)
	checkOK(t, parent.cpus.all[1].cpu.SetTSCOffset(offset+uint64(khz)*apartMS))
	_, err = parent.Resume()
	checkOK(t, err)
	parent.waitBeat()
	s := parent.save()
	was := parent.cpus.tsc[0]
	for _, c := range starts {
		t.Run(c.name, func(t *testing.T) {
			v := newBareShaped(t, parent.shape, consoleMax)
			v.disks = parent.disks
			checkOK(t, v.Prewarm())
			// A shell that is older than the guest by less than a second. KVM takes a write in this
			// range for a correction.
			const olderMS = 400
			for {
				now, err := tscOf(v.cpus.all[0].cpu)
				checkOK(t, err)
				if now > was+uint64(khz)*olderMS {
					// Since Linux 6.7 the first write always takes effect. Writing the current
					// value changes nothing else.
					checkOK(t, writeMSRs(v.cpus.all[0].cpu, []kvm.MSR{{Index: msrTSC, Value: now}}))
					break
				}
				time.Sleep(time.Millisecond)
			}
			var began time.Time
			startBare(t, v, s, c.prepare, c.gated, 500*time.Millisecond, func() { began = time.Now() })
			v.until("the guest to look", func() bool { return v.long(bareBeat) > was })
			now := v.long(bareBeat)
			passed := uint64(time.Since(began).Microseconds()+1000) * uint64(khz) / 1000
			if now > was+passed*101/100 {
				t.Errorf("the counter was %d and is %d, %d too much of %d kHz", was, now, now-was-passed, khz)
			}
			checkOK(t, v.Pause())
			if apart := v.cpus.tsc[1] - v.cpus.tsc[0]; apart != uint64(khz)*apartMS {
				t.Errorf("the second vCPU's counter is %d ahead, in the source it was %d", int64(apart), uint64(khz)*apartMS)
			}
		})
	}
}

// A prepared machine may wait for minutes. Its guest's timers must not count them.
func TestATimerDoesNotRunBeforeTheGuest(t *testing.T) {
	const (
		lapicTimer  = 0xfee00320
		tscDeadline = 2 << 17
		vector      = 0x46
		aheadMS     = 300
	)
	script := newScript()
	script.op(opStore32, lapicSpurious, 0x1ff)
	script.op(opStore32, lapicTimer, tscDeadline|vector)
	script.op(opStore32, bareMark, 1)
	script.repeat(opCountUntil, 1, lapicRequests+vector/32*16, 1<<(vector%32), bareResults)
	script.op(opKeepTSC, bareBeat, 0)
	parent := bootBare(t, script, nil)
	parent.waitMark()
	checkOK(t, parent.Pause())
	khz, err := parent.cpus.all[0].cpu.TSCKHz()
	checkOK(t, err)
	deadline := parent.cpus.tsc[0] + uint64(khz)*aheadMS
	checkOK(t, writeMSRs(parent.cpus.all[0].cpu, []kvm.MSR{{Index: msrTSCDeadline, Value: deadline}}))
	s := parent.save()
	v := newBare(t)
	v.disks = parent.disks
	startBare(t, v, s, true, true, 2*aheadMS*time.Millisecond, func() {})
	v.until("the timer", func() bool { return v.long(bareBeat) != 0 })
	if now := v.long(bareBeat); now < deadline-uint64(khz)/10 { // KVM may be early by some microseconds
		t.Errorf("it fired %d ms early", (deadline-now)/uint64(khz))
	}
}

func TestMemoryTypesAreSaved(t *testing.T) {
	want := map[uint64]uint64{msrMTRRDefType: 1<<11 | 1<<10 | 6, 0x250: 0x0606060606060606, msrMTRRVariable0: 0xc0000000, msrMTRRVariable0 + 1: 0xc0000800, 0x26f: 0x0505050505050505}
	script := newScript()
	for msr, value := range want {
		script.op(opWriteMSR, msr, value)
	}
	script.finish()
	parent := bootBare(t, script, nil)
	parent.waitMark()
	child, err := restoreBare(t, parent, saved{state: parent.save().state}, true) // of zero pages
	checkOK(t, err)
	for msr, value := range want {
		got, err := child.cpus.all[0].cpu.MSRs([]uint32{uint32(msr)})
		if err != nil || len(got) != 1 || got[0].Value != value {
			t.Errorf("MSR %#x is %v (%v), in the source it was %#x", msr, got, err, value)
		}
	}
}
