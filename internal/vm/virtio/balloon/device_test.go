package balloon

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

var update = flag.Bool("update", false, "rewrite golden files")

const ramSize = 1 << 20

// span is a discarded range.
type span struct {
	gpa virtio.GPA
	n   int64
}

// host is the other side of the device.
type host struct {
	gone []span
	then func() // if set, called for each
}

func (h *host) discard(gpa virtio.GPA, n int64) {
	h.gone = append(h.gone, span{gpa, n})
	if h.then != nil {
		h.then()
	}
}

func start(t testing.TB, features uint64) (*virtiotest.Driver, *host) {
	t.Helper()
	h := &host{}
	d, err := virtiotest.New(t, New(Config{Discard: h.discard}), virtiotest.NewMemory(ramSize)).Start(features)
	if err != nil {
		t.Fatal(err)
	}
	return d, h
}

// free reports ranges in queue q, and checks that the answers have length 0.
func free(t *testing.T, d *virtiotest.Driver, q int, ranges ...span) {
	t.Helper()
	var segs []virtiotest.Seg
	for _, r := range ranges {
		segs = append(segs, virtiotest.Seg{GPA: r.gpa, Len: int(r.n), Write: true})
	}
	head, ok := d.Queues[q].Add(segs...)
	if !ok {
		t.Fatalf("no room for %d ranges", len(ranges))
	}
	d.Queues[q].Kick()
	if got, n, ok := d.Queues[q].Used(); !ok || got != head || n != 0 {
		t.Fatalf("report %d: used %v, chain %d, %d bytes, %v", head, ok, got, n, d.Fault())
	}
}

// A driver finds a balloon that wants no memory. Each queue in which it may look for reports takes
// a whole report of Linux's.
func TestOffersReportsAlone(t *testing.T) {
	d, _ := start(t, ^uint64(0))
	if d.Features&(1<<28-1) != featureReporting {
		t.Errorf("offers %#x", d.Features)
	}
	if got := d.Config(0, 16); !bytes.Equal(got, make([]byte, 16)) {
		t.Errorf("config is % x", got)
	}
	if len(d.Queues) != 5 {
		t.Errorf("%d queues", len(d.Queues))
	}
	d.Write32(0x100+configActual, 7)
	if got := d.Config(2, 6); !bytes.Equal(got, []byte{0, 0, 7, 0, 0, 0}) {
		t.Errorf("from byte 2 on config is % x", got)
	}
}

func TestGivesBackWhatIsReported(t *testing.T) {
	for q := 2; q < 5; q++ {
		d, h := start(t, ^uint64(0))
		free(t, d, q, span{0x40000, 0x10000}, span{0x80000, 0x1000})
		if want := []span{{0x40000, 0x10000}, {0x80000, 0x1000}}; !slices.Equal(h.gone, want) {
			t.Errorf("queue %d: %v went, want %v", q, h.gone, want)
		}
	}
}

func TestOnlyWholePagesGo(t *testing.T) {
	d, h := start(t, ^uint64(0))
	free(t, d, 2, span{0x40001, 0x2fff}, span{0x50000, 0xfff}, span{0x60fff, 2}, span{100, 100}, span{0x70010, 0x2000})
	if want := []span{{0x41000, 0x2000}, {0x71000, 0x1000}}; !slices.Equal(h.gone, want) {
		t.Errorf("%v went, want %v", h.gone, want)
	}
}

// Pages inflated by a driver are answered, and stay.
func TestInflatedPagesStay(t *testing.T) {
	d, h := start(t, ^uint64(0))
	for q := range 2 {
		if _, err := d.Queues[q].Exchange(make([]byte, 64), 0); err != nil {
			t.Error(err)
		}
	}
	free(t, d, 0, span{0x40000, 0x1000})
	if len(h.gone) > 0 {
		t.Errorf("%v went", h.gone)
	}
}

// A report of 32 ranges in an indirect table, each larger than a request of other devices may be.
func TestAReportIsAsLongAsItIs(t *testing.T) {
	h := &host{}
	mem := virtiotest.NewMemory(160 << 20) // only its rings are accessed
	d, err := virtiotest.New(t, New(Config{Discard: h.discard}), mem).Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	const n = 4 << 20
	table := mem.Alloc(32 * 16)
	for i := range uint64(32) {
		flags := uint16(2 | 1) // write, next
		if i == 31 {
			flags = 2
		}
		virtiotest.PutDesc(mem.Bytes(table+16*i, 16), n+n*i, n, flags, uint16(i+1))
	}
	q := d.Queues[4]
	q.Desc(0, table, 32*16, 4, 0)
	q.Offer(0)
	q.Kick()
	var sum int64
	for _, s := range h.gone {
		sum += s.n
	}
	if sum != 32*n || d.MMIO.NeedsReset() {
		t.Errorf("%d bytes went, want %d: %v", sum, 32*n, d.Fault())
	}
}

func TestHostileReports(t *testing.T) {
	for name, attack := range map[string]func(q *virtiotest.Queue){
		"beyond RAM":         func(q *virtiotest.Queue) { q.Desc(0, ramSize, 4096, 2, 0) },
		"across the end":     func(q *virtiotest.Queue) { q.Desc(0, ramSize-4096, 8192, 2, 0) },
		"one that wraps":     func(q *virtiotest.Queue) { q.Desc(0, ^uint64(0)-4095, 8192, 2, 0) },
		"4 GiB":              func(q *virtiotest.Queue) { q.Desc(0, 0, 0xffffffff, 2, 0) },
		"a chain that loops": func(q *virtiotest.Queue) { q.Desc(0, 0x40000, 4096, 3, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			d, h := start(t, ^uint64(0))
			attack(d.Queues[2])
			d.Queues[2].Offer(0)
			d.Queues[2].ForceKick()
			if !d.MMIO.NeedsReset() || len(h.gone) > 0 {
				t.Errorf("the device goes on, %v went", h.gone)
			}
			again, err := d.Start(^uint64(0))
			if err != nil {
				t.Fatal(err)
			}
			free(t, again, 2, span{0x40000, 0x1000})
		})
	}
}

// Ranges that the guest offers for reading do not belong to a report.
func TestReadableRangesStay(t *testing.T) {
	d, h := start(t, ^uint64(0))
	if _, err := d.Queues[2].Exchange(make([]byte, 8192), 0); err != nil || len(h.gone) > 0 {
		t.Errorf("%v went, %v", h.gone, err)
	}
}

// A pause of the machine waits for one slice of a report of any length, and a save has the report
// in its queue.
func TestAPauseInAReport(t *testing.T) {
	h := &host{}
	mem := virtiotest.NewMemory(64 << 20)
	dev := New(Config{Discard: h.discard})
	d, err := virtiotest.New(t, dev, mem).Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	paused := make(chan struct{})
	h.then = func() {
		h.then = nil
		go func() { d.MMIO.Pause(); close(paused) }()
		for !dev.workers[2].Leaving() {
		}
	}
	d.Queues[2].Add(virtiotest.Seg{GPA: 16 << 20, Len: 32 << 20, Write: true})
	d.Queues[2].Kick()
	<-paused
	if want := []span{{16 << 20, discardSlice}}; !slices.Equal(h.gone, want) {
		t.Errorf("%v went before the pause, want %v", h.gone, want)
	}
	if _, _, ok := d.Queues[2].Used(); ok {
		t.Error("the report was answered")
	}
	state, err := d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	clone := &host{}
	b := virtiotest.New(t, New(Config{Discard: clone.discard}), mem.Clone())
	if err := b.MMIO.Restore(state); err != nil {
		t.Fatal(err)
	}
	b.MMIO.Resume()
	if _, _, ok := d.Move(b).Queues[2].Used(); !ok || len(clone.gone) != 4 {
		t.Errorf("in the clone: %v, %v", clone.gone, b.Fault())
	}
}

func TestGoldenState(t *testing.T) {
	const path = "testdata/balloon-v1.state"
	d, _ := start(t, ^uint64(0))
	d.Write32(0x100+configActual, 0x01020304)
	got := d.MMIO.Device().SaveState()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("state is\n% x, golden file has\n% x", got, want)
	}
	back := New(Config{})
	if err := back.RestoreState(want); err != nil || !bytes.Equal(back.SaveState(), want) {
		t.Errorf("restored as\n% x, %v", back.SaveState(), err)
	}
	back.Reset()
	if back.actual.Load() != 0 {
		t.Error("a reset keeps the balloon's size")
	}
}
