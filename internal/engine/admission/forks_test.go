package admission_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/admission"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/settings"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// wantRefused checks that a whole fork was refused and left no sandboxes.
func wantRefused(h *enginefake.Host, e *engine.Engine, n int, kind error, reason sandbox.Reason, says ...string) {
	h.T.Helper()
	before := len(e.List())
	_, err := e.Fork(h.T.Context(), sandbox.ForkRequest{Tag: "a", N: n})
	enginefake.WantError(h.T, err, kind, says...)
	if said := (*sandbox.Error)(nil); errors.As(err, &said) && said.Reason() != reason {
		h.T.Errorf("the reason is %s, want %s", said.Reason(), reason)
	}
	if now := len(e.List()); now != before {
		h.T.Errorf("%d are listed, before there were %d", now, before)
	}
	if left := e.Admission.Pending(); left != (admission.Need{}) {
		h.T.Errorf("still taken: %+v", left)
	}
}

func TestAForkThatDoesNotFitIsRefusedAsAWhole(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*enginefake.Host)
		kind   error
		reason sandbox.Reason
		says   string
	}{
		"memory": {func(h *enginefake.Host) { h.Available = 256<<20 + 5*64<<20 }, sandbox.ErrNoMemory, sandbox.ReasonHostMemory,
			"512 MiB needed for 8 VMs of 64 MiB each, 320 MiB available without the reserve of 256 MiB"},
		"promised memory": {func(h *enginefake.Host) { h.HostFacts.MemoryTotal = 1 << 20 }, sandbox.ErrNoMemory,
			sandbox.ReasonMemoryPromised, "the bound is 32 MiB: 32 times the host's 1 MiB"},
		"the store": {func(h *enginefake.Host) { h.HostFacts.DiskFree = 1 << 20 }, sandbox.ErrNoSpace, sandbox.ReasonStoreFull,
			"2048 KiB needed for 8 VMs, 1 MiB free"},
		"descriptors": {func(h *enginefake.Host) { h.HostFacts.Files = h.HostFacts.MaxFiles - 256 }, sandbox.ErrNoResources,
			sandbox.ReasonHostDescriptors, "32 needed for 8 VMs, 0 of 100000 available"},
		"threads": {func(h *enginefake.Host) { h.HostFacts.Threads = h.HostFacts.MaxThreads - 520 }, sandbox.ErrNoResources,
			sandbox.ReasonHostThreads, "8 of 100000 available (kernel.pid_max"},
		"threads of the cgroup": {func(h *enginefake.Host) { h.HostFacts.GroupThreads, h.HostFacts.MaxGroupThreads = 90, 600 },
			sandbox.ErrNoResources, sandbox.ReasonHostThreads, "0 of 600 available (pids.max of the cgroup"},
		"pressure": {func(h *enginefake.Host) { h.HostFacts.Pressure, h.Available = hostproc.Pressure{Memory: 61}, 15<<30 },
			sandbox.ErrBusy, sandbox.ReasonHostPressure, "for 61 % of the last 10 s work waited for memory"},
	} {
		t.Run(name, func(t *testing.T) {
			h := enginefake.NewHost(t)
			h.Cfg.ChildMemory = 64 << 20
			e := h.Open()
			h.Snapshot(e, "a")
			h.Fork(e, "a", 1)
			facts, available := h.HostFacts, h.Available
			h.Change(e, c.change)
			wantRefused(h, e, 8, c.kind, c.reason, c.says)
			h.Eval(e, e.List()[0].ID, "entropy") // running sandboxes keep running
			h.Change(e, func(h *enginefake.Host) { h.HostFacts, h.Available = facts, available })
			h.Fork(e, "a", 8)
		})
	}
}

func TestWhatIsPromisedGoesWithTheSandbox(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.MemoryOvercommit = 1
	e := h.Open()
	h.Snapshot(e, "a")
	first := h.Fork(e, "a", 2)
	each := first[0].Shape.MemoryBytes()
	h.Change(e, func(h *enginefake.Host) { h.HostFacts.MemoryTotal = 3 * each })
	wantRefused(h, e, 2, sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised, "are promised already")
	if c, err := e.Capacity(); err != nil || c.Sandboxes != 2 || c.Resources[0].Promised != 2*each ||
		c.Resources[0].MayPromise != 3*each {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := e.Rollback(t.Context(), first[0].ID, "a"); err != nil { // it replaces a VM
		t.Error(err)
	}
	h.Fault("restore-fail", 1)
	if r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1}); err == nil && r.Children[0].Err == nil {
		t.Error("a child was made")
	}
	third := h.Fork(e, "a", 1)[0] // the failed child's resources are free
	wantRefused(h, e, 1, sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised)

	// The next daemon restores the promises from the journals.
	h.Close(e)
	e = h.Open()
	wantRefused(h, e, 1, sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised)
	if err := e.Kill(t.Context(), third.ID); err != nil {
		t.Fatal(err)
	}
	fourth := h.Fork(e, "a", 1)[0]
	wantRefused(h, e, 1, sandbox.ErrNoMemory, sandbox.ReasonMemoryPromised)
	if err := unix.Kill(fourth.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	enginefake.Eventually(t, "failure of the killed one", enginefake.Failed(e, fourth.ID))
	h.Fork(e, "a", 1)
}

func TestUnderPressureFewerAreMadeAtOnceAndNoShell(t *testing.T) {
	h := enginefake.NewHost(t)
	h.Cfg.Pressure = &settings.Pressure{CPU: settings.Bound{Fewer: 50, None: 90}}
	h.HostFacts.Pressure.CPU = 50
	e := h.Open()
	h.Snapshot(e, "a")
	h.Fork(e, "a", 5)
	if c, err := e.Capacity(); err != nil || c.Admits != sandbox.AdmitsFewer {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := e.Admission.Spare(admission.Need{}); !errors.Is(err, sandbox.ErrBusy) {
		t.Errorf("a shell: %v", err)
	}
	h.Change(e, func(h *enginefake.Host) { h.HostFacts.Pressure.CPU = 90 })
	wantRefused(h, e, 1, sandbox.ErrBusy, sandbox.ReasonHostPressure, "90 % of the last 10 s", "cpu", "no VM is made")
	_, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "b", Image: "tiny"}, nil)
	enginefake.WantError(t, err, sandbox.ErrBusy, "under pressure")
}

// The count of descriptors for a child is not less than its actual use.
func TestAChildTakesNoMoreDescriptorsThanAreCounted(t *testing.T) {
	h := enginefake.NewHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	const n = 20
	before := enginefake.OpenFiles(t)
	sbs := h.Fork(e, "a", n)
	took := enginefake.OpenFiles(t) - before
	t.Logf("%d descriptors for %d children", took, n)
	if counted := admission.Shell(0, sbs[0].Shape).Files; took > n*int(counted)+n/2 {
		t.Errorf("%d children take %d descriptors, %d are counted for each", n, took, counted)
	}
}
