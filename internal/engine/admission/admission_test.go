package admission

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/settings"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// fakeHost reports the facts set by a test.
type fakeHost struct {
	has   hostproc.Facts
	err   error
	reads int
}

func (h *fakeHost) Facts() (hostproc.Facts, error) { // only under Control.turn
	h.reads++
	return h.has, h.err
}

const gib = 1 << 30

// sixteen returns an idle host of 16 GiB.
func sixteen() *fakeHost {
	return &fakeHost{has: hostproc.Facts{MemoryAvailable: 15 * gib, MemoryTotal: 16 * gib, DiskFree: 40 * gib,
		DiskTotal: 50 * gib, Files: 40, MaxFiles: 1 << 17, Threads: 300, MaxThreads: 32768}}
}

// world is a Control with its fake host and promises.
type world struct {
	*Control
	host    *fakeHost
	running Promised
	at      time.Time
	log     bytes.Buffer
}

func newWorld(host *fakeHost, change func(*settings.Config)) *world {
	w := &world{host: host, at: time.Unix(1000, 0)}
	c := settings.Config{Host: host, HostReserve: 256 << 20, DiskReserve: 256 << 20,
		MemoryOvercommit: settings.DefaultMemoryOvercommit, Now: func() time.Time { return w.at },
		Logger: slog.New(slog.NewTextHandler(&w.log, nil))}
	p := settings.DefaultPressure()
	c.Pressure = &p
	if change != nil {
		change(&c)
	}
	w.Control = New(&c, func() Promised { return w.running })
	return w
}

// child returns the need of a child of an image with 128 MiB and a disk of 4 GiB.
func child(l sandbox.Limits) Need {
	return Child(8<<20, vmspec.Shape{MemoryMiB: 128, VCPUs: 1, Disks: 2}, 4*gib, l)
}

// idle adds n idle children to the host's figures.
func (w *world) idle(n int) {
	w.running = w.running.Add(child(sandbox.Limits{}).Promised.times(n))
	w.host.has.MemoryAvailable -= int64(n) * 5 << 20
	w.host.has.Files += int64(n) * 3
	w.host.has.Threads += int64(n) * 8
	w.Refresh()
}

func TestAThousandIdleChildrenFitOn16GiB(t *testing.T) {
	w := newWorld(sixteen(), nil)
	g, err := w.VMs(1000, 0, child(sandbox.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	g.Release()
	for range 10 {
		g, err := w.VMs(100, 0, child(sandbox.Limits{}))
		if err != nil {
			t.Fatal(err)
		}
		g.Release()
		w.idle(100)
	}
	if w.running.VMs != 1000 {
		t.Errorf("%d run", w.running.VMs)
	}
	w = newWorld(sixteen(), func(c *settings.Config) { c.MemoryOvercommit = 2 })
	if _, err := w.VMs(1000, 0, child(sandbox.Limits{})); !errors.Is(err, sandbox.ErrNoMemory) {
		t.Errorf("promised twice: %v", err)
	}
	small := sixteen()
	small.has.MemoryTotal, small.has.MemoryAvailable = 6*gib, 5.5*gib // the machine's default
	if _, err := newWorld(small, nil).VMs(500, 0, child(sandbox.Limits{})); err != nil {
		t.Error(err)
	}
}

func TestWhatIsShortIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		says   string
	}{
		"memory at once": {func(w *world) { w.host.has.MemoryAvailable = 256<<20 + 79<<20 },
			"not enough memory: 80 MiB needed for 10 VMs of 8 MiB each, 79 MiB available without the reserve of 256 MiB"},
		"less than the reserve": {func(w *world) { w.host.has.MemoryAvailable = 1 << 20 }, "0 MiB available"},
		"promised memory": {func(w *world) { w.running.Memory = 511 * gib },
			"1280 MiB more for 10 VMs of 128 MiB each, 523264 MiB are promised already, and the bound is 524288 MiB: 32 times " +
				"the host's 16384 MiB"},
		"the store": {func(w *world) { w.host.has.DiskFree = 256<<20 + 2559<<10 },
			"2560 KiB needed for 10 VMs, 258 MiB free including the reserve of 256 MiB"},
		"promised disk": {func(w *world) { w.bounds.diskOvercommit = 0.5 },
			"40960 MiB more for 10 VMs of 4096 MiB each, 0 MiB are promised already, and the bound is 25600 MiB: 0.5 times " +
				"the store's 51200 MiB"},
		"descriptors": {func(w *world) { w.host.has.Files = w.host.has.MaxFiles - spareFiles - 39 },
			"40 needed for 10 VMs, 39 of 131072 available (the daemon's limit of open files)"},
		"threads": {func(w *world) { w.host.has.Threads = w.host.has.MaxThreads - spareThreads - 129 },
			"130 needed for 10 VMs, 129 of 32768 available (kernel.pid_max, kernel.threads-max)"},
		"threads of a group": {func(w *world) { w.host.has.GroupThreads, w.host.has.MaxGroupThreads = 388, 1000 },
			"100 of 1000 available (pids.max of the cgroup around it: TasksMax)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(sixteen(), nil)
			c.change(w)
			_, err := w.VMs(10, 0, child(sandbox.Limits{}))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %s", err, c.says)
			}
			if w.Pending() != (Need{}) {
				t.Errorf("taken: %+v", w.Pending())
			}
		})
	}
}

func TestALimitIsAPromise(t *testing.T) {
	shape := vmspec.Shape{MemoryMiB: 512, VCPUs: 1}
	for limit, want := range map[int]int64{0: 512, 64: 64, 1024: 512} {
		if got := PromisedTo(shape, 0, sandbox.Limits{MemoryMiB: limit}).Memory >> 20; got != want {
			t.Errorf("with a limit of %d MiB it is promised %d MiB, want %d", limit, got, want)
		}
	}
}

func TestADiskLimitIsAPromise(t *testing.T) {
	for limit, want := range map[int]int64{0: 4096, 64: 64, 8192: 4096} {
		if got := PromisedTo(vmspec.Shape{}, 4*gib, sandbox.Limits{DiskMiB: limit}).Disk >> 20; got != want {
			t.Errorf("with a limit of %d MiB it is promised %d MiB, want %d", limit, got, want)
		}
	}
}

func TestWhatIsNotKnownIsNotCounted(t *testing.T) {
	w := newWorld(&fakeHost{has: hostproc.Facts{MemoryAvailable: gib, DiskFree: gib}}, nil)
	if _, err := w.VMs(2, 0, child(sandbox.Limits{})); err != nil {
		t.Error(err)
	}
	w.host.err = errors.New("no /proc")
	w.Refresh()
	if _, err := w.VMs(1, 0, child(sandbox.Limits{})); err == nil || !strings.Contains(err.Error(), "no /proc") {
		t.Errorf("of a host that cannot be read: %v", err)
	}
}

func TestAGrantIsGivenBackOnce(t *testing.T) {
	w := newWorld(sixteen(), nil)
	g, err := w.VMs(3, 1, child(sandbox.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	if p := w.Pending(); p.Memory != 24<<20 || p.Files != 2*vmFiles || p.Promised.VMs != 3 {
		t.Errorf("taken: %+v", p)
	}
	one, two := g.One(), g.One()
	one()
	one()
	if p := w.Pending(); p.Memory != 16<<20 || p.Promised.VMs != 2 {
		t.Errorf("when one has its part: %+v", p)
	}
	g.Release()
	two()
	g.Release()
	if p := w.Pending(); p != (Need{}) {
		t.Errorf("at the end: %+v", p)
	}
	release, err := w.Memory(gib)
	if err != nil || w.Pending() != (Need{Memory: gib}) {
		t.Errorf("of memory only: %+v, %v", w.Pending(), err)
	}
	release()
	if w.Pending() != (Need{}) {
		t.Errorf("then: %+v", w.Pending())
	}
}

// Of many concurrent requests, only as many pass as there is room for.
func TestTwoDoNotPassOnTheSameRoom(t *testing.T) {
	host := sixteen()
	host.has.MemoryAvailable = 256<<20 + 50*8<<20
	w := newWorld(host, nil)
	var passed sync.Map
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if g, err := w.VMs(1, 0, child(sandbox.Limits{})); err == nil {
				passed.Store(i, g)
			}
		})
	}
	all.Wait()
	n := 0
	passed.Range(func(_, g any) bool {
		g.(*Grant).Release()
		n++
		return true
	})
	if n != 50 || w.Pending() != (Need{}) {
		t.Errorf("%d passed, want 50; then taken: %+v", n, w.Pending())
	}
}

func TestFactsAreReadOnceForMany(t *testing.T) {
	w := newWorld(sixteen(), nil)
	for range 100 {
		g, err := w.VMs(100, 0, child(sandbox.Limits{}))
		if err != nil {
			t.Fatal(err)
		}
		g.Release()
	}
	if w.host.reads != 1 {
		t.Errorf("%d reads", w.host.reads)
	}
	w.at = w.at.Add(figuresAge + 1)
	if _, err := w.Memory(1); err != nil || w.host.reads != 2 {
		t.Errorf("later: %d reads, %v", w.host.reads, err)
	}
}

func TestPressure(t *testing.T) {
	all := &settings.Pressure{CPU: settings.Bound{None: 95}, Memory: settings.Bound{Fewer: 20, None: 60},
		IO: settings.Bound{Fewer: 80}}
	for name, c := range map[string]struct {
		bounds    *settings.Pressure // nil: the default
		some      hostproc.Pressure
		available int64
		want      string
		by        string
	}{
		"none":                          {nil, hostproc.Pressure{}, 15 * gib, sandbox.AdmitsAll, ""},
		"CPUs, by default":              {nil, hostproc.Pressure{CPU: 100, IO: 100}, gib, sandbox.AdmitsAll, ""},
		"memory":                        {nil, hostproc.Pressure{Memory: 20}, 2 * gib, sandbox.AdmitsFewer, "memory"},
		"more":                          {nil, hostproc.Pressure{Memory: 60}, 2 * gib, sandbox.AdmitsNone, "memory"},
		"a sandbox at its limit":        {nil, hostproc.Pressure{Memory: 100}, 9 * gib, sandbox.AdmitsAll, ""},
		"CPUs below":                    {all, hostproc.Pressure{CPU: 94.9}, gib, sandbox.AdmitsAll, ""},
		"CPUs":                          {all, hostproc.Pressure{CPU: 95, IO: 90}, gib, sandbox.AdmitsNone, "cpu"},
		"disks":                         {all, hostproc.Pressure{IO: 100}, gib, sandbox.AdmitsFewer, "io"},
		"disks, and memory beyond that": {all, hostproc.Pressure{IO: 100, Memory: 99}, gib, sandbox.AdmitsNone, "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			host := sixteen()
			host.has.Pressure, host.has.MemoryAvailable = c.some, c.available
			w := newWorld(host, func(s *settings.Config) {
				if c.bounds != nil {
					s.Pressure = c.bounds
				}
			})
			g, err := w.VMs(1, 0, Need{})
			if (err == nil) != (c.want != sandbox.AdmitsNone) {
				t.Fatalf("got %v", err)
			}
			if err != nil && (!errors.Is(err, sandbox.ErrBusy) || !strings.Contains(err.Error(), "waited for "+c.by)) {
				t.Errorf("got %v, want busy for %s", err, c.by)
			}
			if err == nil && (g.AtOnce(8) == 2) != (c.want == sandbox.AdmitsFewer) {
				t.Errorf("%d at once", g.AtOnce(8))
			}
			if _, err := w.Spare(Need{}); (err == nil) != (c.want == sandbox.AdmitsAll) {
				t.Errorf("a shell: %v", err)
			}
			if _, err := w.Memory(1); err != nil {
				t.Errorf("what makes no VM: %v", err)
			}
			if got, err := w.capacity(); err != nil || got.Admits != c.want {
				t.Errorf("it is shown as %s, %v", got.Admits, err)
			}
			if said := w.log.String(); (c.want == sandbox.AdmitsAll) != (said == "") || !strings.Contains(said, c.by) {
				t.Errorf("the log says %q", said)
			}
		})
	}
}

func TestTheLogSaysWhenPressureIsOver(t *testing.T) {
	host := sixteen()
	host.has.Pressure.Memory, host.has.MemoryAvailable = 30, gib
	w := newWorld(host, nil)
	for range 3 {
		if _, err := w.VMs(1, 0, Need{}); err != nil {
			t.Fatal(err)
		}
	}
	host.has.Pressure.Memory = 0
	w.Refresh()
	if _, err := w.VMs(1, 0, Need{}); err != nil {
		t.Fatal(err)
	}
	if said := w.log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "no pressure any more") {
		t.Errorf("the log says %s", said)
	}
}

func TestCapacity(t *testing.T) {
	w := newWorld(sixteen(), nil)
	w.running = Promised{VMs: 3, Memory: 3 << 20, Disk: 3 << 10}
	if _, err := w.VMs(2, 0, child(sandbox.Limits{})); err != nil {
		t.Fatal(err)
	}
	c, err := w.capacity()
	if err != nil || c.Sandboxes != 3 || c.Coming != 2 || len(c.Resources) != 4 || len(c.Pressure) != 3 {
		t.Fatalf("%+v, %v", c, err)
	}
	want := sandbox.Resource{Name: sandbox.ResourceMemory, Total: 16 * gib, Free: 15*gib - 256<<20 - 16<<20,
		Reserve: 256 << 20, Promised: 3<<20 + 256<<20, MayPromise: 512 * gib}
	if c.Resources[0] != want {
		t.Errorf("memory: %+v, want %+v", c.Resources[0], want)
	}
	if c.Admits != sandbox.AdmitsAll {
		t.Errorf("it admits %s", c.Admits)
	}
	w.host.has.DiskFree = 1
	w.Refresh()
	if full, err := w.capacity(); err != nil || full.Admits != sandbox.AdmitsNone || full.Resources[1].Free != 0 {
		t.Errorf("without room in the store: %+v, %v", full, err)
	}
	if d := c.Resources[1]; d.Promised != 3<<10+8*gib || d.MayPromise != 0 {
		t.Errorf("disk: %+v", d)
	}
}

// The host running the tests has room for a child, or the refusal names the insufficient resource.
func TestThisHost(t *testing.T) {
	h := ThisHost(t.TempDir(), "", time.Now)
	for range 2 {
		f, err := h.Facts()
		if err != nil || f.MemoryTotal < f.MemoryAvailable || f.DiskTotal < f.DiskFree || f.MaxFiles < f.Files ||
			f.MaxThreads < f.Threads || f.Threads == 0 {
			t.Errorf("%+v, %v", f, err)
		}
		t.Logf("%+v", f)
	}
	if _, err := ThisHost("/nowhere/at/all", "", time.Now).Facts(); err == nil {
		t.Error("a store that is not there has room")
	}
}

func BenchmarkAdmit(b *testing.B) {
	w := newWorld(sixteen(), nil)
	need := child(sandbox.Limits{})
	for b.Loop() {
		g, err := w.VMs(100, 0, need)
		if err != nil {
			b.Fatal(err)
		}
		g.Release()
	}
}

func BenchmarkFacts(b *testing.B) {
	h := ThisHost(b.TempDir(), "", time.Now)
	for b.Loop() {
		if _, err := h.Facts(); err != nil {
			b.Fatal(err)
		}
	}
}
