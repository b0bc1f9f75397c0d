package live

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// goroutineGuest is a guest without KVM: goroutines that write to memory and disk like a guest and
// its devices, and stop during a pause.
type goroutineGuest struct {
	m       *Machine
	running sync.RWMutex // held for reading during a write
	ended   atomic.Bool
	writers sync.WaitGroup
	rate    atomic.Int64 // pages per burst
	first   atomic.Int64 // first page of the written window
	window  atomic.Int64 // its number of pages
	frees   atomic.Bool  // it also reports memory as free
}

func (g *goroutineGuest) Pause() error {
	g.running.Lock()
	g.m.state = vmm.StatePaused
	return nil
}

func (g *goroutineGuest) Resume() (int64, error) {
	g.m.state = vmm.StateRunning
	g.running.Unlock()
	return startgate.Now(), nil
}

func (g *goroutineGuest) SaveState() ([]byte, error) { return []byte("state"), nil }

// write makes one goroutine write until the guest ends.
func (g *goroutineGuest) write(burst func(*rand.Rand)) {
	g.writers.Go(func() {
		random := rand.New(rand.NewPCG(rand.Uint64(), 0))
		for !g.ended.Load() {
			g.running.RLock()
			burst(random)
			g.running.RUnlock()
			time.Sleep(100 * time.Microsecond)
		}
	})
}

func (g *goroutineGuest) writeMemory(random *rand.Rand) {
	for range g.rate.Load() {
		page := (g.first.Load() + random.Int64N(g.window.Load())) % (oracleMemory / guestmem.PageSize)
		p := g.m.mem.Linear()[page*guestmem.PageSize:][:guestmem.PageSize]
		if random.IntN(20) == 0 {
			clear(p) // a private page of zeros
			continue
		}
		at := random.IntN(guestmem.PageSize - 8)
		binary.LittleEndian.PutUint64(p[at:], random.Uint64())
	}
}

// freeMemory reports some pages now and then. They are discarded unless a capture is in progress.
func (g *goroutineGuest) freeMemory(random *rand.Rand) {
	if !g.frees.Load() || random.IntN(10) > 0 {
		return
	}
	n := guestmem.PageSize * (1 + random.Int64N(64))
	at := random.Int64N((oracleMemory-n)/guestmem.PageSize) * guestmem.PageSize
	if err := g.m.mem.Discard(uint64(at), n); err != nil {
		panic(err)
	}
}

func (g *goroutineGuest) writeDisk(random *rand.Rand) {
	d := g.m.disks.overlays[0]
	n := 512 * (1 + random.Int64N(40))
	at := random.Int64N((oracleDisk-n)/512) * 512
	switch random.IntN(8) {
	case 0:
		d.Discard(at, n)
	case 1:
		d.WriteZeroes(at, n)
	case 2:
		d.Flush()
	default:
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		d.WriteAt(b, at)
	}
}

// plainWorld creates goroutineGuests.
type plainWorld struct {
	t      *testing.T
	random *rand.Rand
}

func (w plainWorld) restore(memory []extent.Extent, disks []vmm.Disk, state []byte) *subject {
	w.t.Helper()
	m := newMachine(Config{Shape: vmspec.Shape{MemoryMiB: oracleMiB, VCPUs: 1, Disks: len(disks)}})
	m.state, m.disks.all = vmm.StateRunning, disks
	var err error
	m.mem, err = guestmem.Reserve(oracleMemory)
	checkOK(w.t, err)
	checkOK(w.t, mapMemory(m.mem, vmm.RestoreConfig{Memory: memory, Watch: w.random.IntN(2) == 0}))
	for i, d := range disks {
		_, err := m.disks.open(i, d)
		checkOK(w.t, err)
	}
	g := &goroutineGuest{m: m}
	s := &subject{Machine: m, guest: g, disturb: g.disturb}
	g.disturb(w.random)
	g.frees.Store(false) // until it is disturbed again
	if state != nil {    // until it is resumed
		checkOK(w.t, g.Pause())
	}
	for range 2 {
		g.write(g.writeMemory)
	}
	g.write(g.freeMemory)
	if len(disks) > 0 {
		g.write(g.writeDisk)
	}
	s.close = func() {
		g.ended.Store(true)
		if m.state == vmm.StatePaused {
			g.Resume()
		}
		g.writers.Wait()
		for _, d := range m.disks.all {
			d.Close()
		}
		m.mem.Close()
	}
	return s
}

func (g *goroutineGuest) disturb(random *rand.Rand) {
	g.rate.Store(1 << random.IntN(7))
	g.frees.Store(random.IntN(2) == 0)
	g.first.Store(random.Int64N(oracleMemory / guestmem.PageSize))
	g.window.Store(1 + random.Int64N(oracleMemory/guestmem.PageSize))
}

// SaveDigest hashes like the machine.
func (g *goroutineGuest) SaveDigest(f *os.File) error { return g.m.SaveDigest(f) }

// The memory and disk parts of a capture, without KVM.
func TestCapturesAreWhatTheGuestHad(t *testing.T) {
	m, err := guestmem.Reserve(guestmem.PageSize)
	checkOK(t, err)
	checkOK(t, m.MapAnonymous())
	tracked := m.Watch() == nil
	m.Close()
	seed := kvmtest.Seed(t)
	total := map[string]int{}
	for i := range uint64(4) {
		random := kvmtest.Random(seed, i)
		o := newOracle(t, random, plainWorld{t, random}, i%2 == 0)
		if i < 2 {
			o.s.guest.(*goroutineGuest).window.Store(oracleMemory / guestmem.PageSize / 4)
			o.save()
			o.firstCaptures()
		}
		for range 25 {
			o.step()
		}
		for what, n := range o.stats {
			total[what] += n
		}
	}
	t.Log(total)
	for _, what := range []string{"captures", "refused", "failed", "live without a round", "live with rounds", "diff", "diff with rounds", "beyond the buffer", "restores", "saves"} {
		if total[what] == 0 && (tracked || what != "live with rounds" && what != "diff with rounds") {
			t.Errorf("no such case: %s", what)
		}
	}
}
