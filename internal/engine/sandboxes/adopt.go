package sandboxes

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/sched"
	"github.com/forkd/forkd/internal/engine/vmproc"
)

// Adopt takes over the state left by the previous daemon in the run directory. It adopts running
// sandboxes, keeps failed ones listed, and ends and removes everything without an owner, such as
// shells and half-made children.
func (t *Table) Adopt(ctx context.Context) error {
	ran := t.Ran.read()
	if err := t.adoptPaused(); err != nil {
		return err
	}
	dirs, err := t.cfg.Procs.Left()
	if err != nil {
		return err
	}
	sched.Each(len(dirs), t.cfg.AtOnce, func(i int) { t.adoptDir(ctx, dirs[i]) })
	t.Ran.listEnded(ran)
	return ctx.Err()
}

// Sweep removes overlay files not used by any sandbox, and cgroups without a VM.
func (t *Table) Sweep() error {
	used, groups := map[string]bool{}, map[string]bool{}
	for _, s := range t.All() {
		if s.vm != nil {
			groups[s.vm.Group()] = true
		}
		for _, path := range s.Disks().Paths() {
			used[path] = true
		}
	}
	t.cfg.Procs.SweepGroups(groups)
	return t.cfg.Procs.SweepOverlays(used)
}

// adoptDir lists the sandbox named in a directory's journal, if there is one.
func (t *Table) adoptDir(ctx context.Context, dir string) {
	left, ok := t.cfg.Procs.Look(dir)
	if !ok {
		return
	}
	var rec Record
	err := vmproc.ReadJSON(filepath.Join(dir, vmproc.SandboxJournal), &rec)
	if err != nil || !rec.validIn(dir) || !t.cfg.Procs.ValidDisks(rec.Disks) {
		t.cfg.Procs.ClearAway(left)
		return
	}
	if t.Lookup(rec.Info.ID) != nil || isAway(t, rec.Info.ID) {
		// It is paused: its VM was about to end, or a new VM was about to become the sandbox's.
		t.cfg.Procs.ClearAway(left)
		return
	}
	closed := rec.Info.ClosePorts()
	s := t.newSandbox(dir, rec.Who, rec.Info)
	s.disks = vmproc.NewDisks(rec.Disks)
	if closed {
		closedPorts(t, s.id, s.recordLocked().write(dir))
	}
	if rec.Info.Status == sandbox.StatusRunning {
		err := t.adoptVM(ctx, s, left)
		if err == nil && rec.Pausing {
			err = t.resumeInterrupted(ctx, s)
		}
		if err != nil {
			t.failAdopted(s, left, err)
		}
	}
	t.mu.Lock()
	t.all[s.id] = s
	info := s.info
	t.mu.Unlock()
	t.cfg.Log.Info("sandbox found", "sandbox", s.id, "status", info.Status, "reason", info.Reason)
}

// closedPorts logs that an adopted sandbox has become private because its record did not mark it as
// public.
func closedPorts(t *Table, id string, err error) {
	t.cfg.Log.Warn("a sandbox's record does not mark its ports as public: they are private now",
		"sandbox", id)
	if err != nil {
		t.cfg.Log.Error("write the token of a sandbox's ports: the next daemon makes another", "sandbox", id, "err", err)
	}
}

func (t *Table) adoptVM(ctx context.Context, s *Sandbox, left vmproc.Left) error {
	vm, err := t.cfg.Procs.Adopt(ctx, left, s.disks)
	if err != nil {
		return err
	}
	if err := vm.Rehome(vmproc.BoundsOf(s.info)); err != nil && vm.Alive() {
		t.cfg.Log.Warn("a sandbox of an earlier version stays outside of its tenant's cgroup", "sandbox", s.id, "err", err)
	}
	s.vm, vm.Agent = vm, vm.NewAgent()
	if !vm.Own(func() { t.fail(s, vm) }) {
		t.fail(s, vm)
	}
	return nil
}

// failAdopted marks a sandbox as failed if its VM ended before this daemon started, or does not
// answer it.
func (t *Table) failAdopted(s *Sandbox, left vmproc.Left, cause error) {
	if err := left.Kill(); err != nil {
		t.cfg.Log.Warn("end a VM that was not adopted", "sandbox", s.id, "err", err)
	}
	s.diedUnseen, s.state = true, failed
	why := t.cfg.Procs.KilledFor(left)
	switch {
	case why != "":
	case t.Ran.booted:
		why = EndedByBoot
	default:
		why = fmt.Sprintf("its VM did not outlive the daemon's restart: %v", cause)
	}
	s.info.Fail(why)
	if err := s.recordLocked().write(s.dir); err != nil {
		t.cfg.Log.Error("write journal", "sandbox", s.id, "err", err)
	}
	t.cfg.Tell(sandbox.EventFailed, s.id, s.info.About())
	t.LogFailure(s.info, s.info.Reason, s.dir)
}
