package engine

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/settings"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// change changes the host before the next admission.
func (h *host) change(e *Engine, f func(*host)) {
	f(h)
	e.Admission.Refresh()
}

// refused checks that a whole fork was refused and left no sandboxes.
func (h *host) refused(e *Engine, n int, kind error, reason sandbox.Reason, says ...string) {
	h.t.Helper()
	before := len(e.List())
	_, err := e.Fork(h.t.Context(), sandbox.ForkRequest{Tag: "a", N: n})
	wantError(h.t, err, kind, says...)
	if said := (*sandbox.Error)(nil); errors.As(err, &said) && said.Reason() != reason {
		h.t.Errorf("the reason is %s, want %s", said.Reason(), reason)
	}
	if now := len(e.List()); now != before {
		h.t.Errorf("%d are listed, before there were %d", now, before)
	}
	if left := e.Admission.Pending(); left != (admission.Need{}) {
		h.t.Errorf("still taken: %+v", left)
	}
}

func TestAForkThatDoesNotFitIsRefusedAsAWhole(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*host)
		kind   error
		reason sandbox.Reason
		says   string
	}{
		"memory": {func(h *host) { h.available = 256<<20 + 5*64<<20 }, sandbox.ErrNoMemory, sandbox.ReasonHostMemory,
			"512 MiB needed for 8 VMs of 64 MiB each, 320 MiB available without the reserve of 256 MiB"},
		"promised memory": {func(h *host) { h.facts.MemoryTotal = 1 << 20 }, sandbox.ErrNoMemory,
			sandbox.ReasonMemoryPromised, "the bound is 32 MiB: 32 times the host's 1 MiB"},
		"the store": {func(h *host) { h.facts.DiskFree = 1 << 20 }, sandbox.ErrNoSpace, sandbox.ReasonStoreFull,
			"2048 KiB needed for 8 VMs, 1 MiB free"},
		"descriptors": {func(h *host) { h.facts.Files = h.facts.MaxFiles - 256 }, sandbox.ErrNoResources,
			sandbox.ReasonHostDescriptors, "32 needed for 8 VMs, 0 of 100000 available"},
		"threads": {func(h *host) { h.facts.Threads = h.facts.MaxThreads - 520 }, sandbox.ErrNoResources,
			sandbox.ReasonHostThreads, "8 of 100000 available (kernel.pid_max"},
		"threads of the cgroup": {func(h *host) { h.facts.GroupThreads, h.facts.MaxGroupThreads = 90, 600 },
			sandbox.ErrNoResources, sandbox.ReasonHostThreads, "0 of 600 available (pids.max of the cgroup"},
		"pressure": {func(h *host) { h.facts.Pressure, h.available = hostproc.Pressure{Memory: 61}, 15<<30 },
			sandbox.ErrBusy, sandbox.ReasonHostPressure, "for 61 % of the last 10 s work waited for memory"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.cfg.ChildMemory = 64 << 20
			e := h.open()
			h.snapshot(e, "a")
			h.fork(e, "a", 1)
			facts, available := h.facts, h.available
			h.change(e, c.change)
			h.refused(e, 8, c.kind, c.reason, c.says)
			h.eval(e, e.List()[0].ID, "entropy") // running sandboxes keep running
			h.change(e, func(h *host) { h.facts, h.available = facts, available })
			h.fork(e, "a", 8)
		})
	}
}

func TestWhatIsPromisedGoesWithTheSandbox(t *testing.T) {
	h := newHost(t)
	h.cfg.MemoryOvercommit = 1
	e := h.open()
	h.snapshot(e, "a")
	first := h.fork(e, "a", 2)
	each := first[0].Shape.MemoryBytes()
	h.change(e, func(h *host) { h.facts.MemoryTotal = 3 * each })
	h.refused(e, 2, sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised, "are promised already")
	if c, err := e.Capacity(); err != nil || c.Sandboxes != 2 || c.Resources[0].Promised != 2*each ||
		c.Resources[0].MayPromise != 3*each {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := e.Rollback(t.Context(), first[0].ID, "a"); err != nil { // it replaces a VM
		t.Error(err)
	}
	h.fault("restore-fail", 1)
	if r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1}); err == nil && r.Children[0].Err == nil {
		t.Error("a child was made")
	}
	third := h.fork(e, "a", 1)[0] // the failed child's resources are free
	h.refused(e, 1, sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised)

	// The next daemon restores the promises from the journals.
	h.close(e)
	e = h.open()
	h.refused(e, 1, sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised)
	if err := e.Kill(t.Context(), third.ID); err != nil {
		t.Fatal(err)
	}
	fourth := h.fork(e, "a", 1)[0]
	h.refused(e, 1, sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised)
	if err := unix.Kill(fourth.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "failure of the killed one", failed(e, fourth.ID))
	h.fork(e, "a", 1)
}

func TestUnderPressureFewerAreMadeAtOnceAndNoShell(t *testing.T) {
	h := newHost(t)
	h.cfg.Pressure = &settings.Pressure{CPU: settings.Bound{Fewer: 50, None: 90}}
	h.facts.Pressure.CPU = 50
	e := h.open()
	h.snapshot(e, "a")
	h.fork(e, "a", 5)
	if c, err := e.Capacity(); err != nil || c.Admits != sandbox.AdmitsFewer {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := e.Admission.Spare(admission.Need{}); !errors.Is(err, sandbox.ErrBusy) {
		t.Errorf("a shell: %v", err)
	}
	h.change(e, func(h *host) { h.facts.Pressure.CPU = 90 })
	h.refused(e, 1, sandbox.ErrBusy, sandbox.ReasonHostPressure, "90 % of the last 10 s", "cpu", "no VM is made")
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "b", Image: "tiny"}, nil)
	wantError(t, err, sandbox.ErrBusy, "under pressure")
}

// The count of descriptors for a child is not less than its actual use.
func TestAChildTakesNoMoreDescriptorsThanAreCounted(t *testing.T) {
	h := newHost(t)
	e := h.open()
	h.snapshot(e, "a")
	const n = 20
	before := openFiles(t)
	sbs := h.fork(e, "a", n)
	took := openFiles(t) - before
	t.Logf("%d descriptors for %d children", took, n)
	if counted := admission.Shell(0, sbs[0].Shape).Files; took > n*int(counted)+n/2 {
		t.Errorf("%d children take %d descriptors, %d are counted for each", n, took, counted)
	}
}
