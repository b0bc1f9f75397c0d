package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/vmmctl"
)

// adoptTimeout bounds how long one VMM may take to answer its new daemon.
const adoptTimeout = 10 * time.Second

// adoptAll goes through what the last engine left in the run directory: it takes
// over sandboxes that still run, keeps failed ones listed, and ends and removes
// everything that belongs to nobody, such as shells and half-made children.
func (e *Engine) adoptAll(ctx context.Context) error {
	if err := os.MkdirAll(e.vmsDir(), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(e.vmsDir())
	if err != nil {
		return err
	}
	for _, en := range entries {
		e.noteVM(en.Name())
	}
	each(len(entries), e.cfg.Concurrency, func(i int) {
		e.adoptDir(ctx, filepath.Join(e.vmsDir(), entries[i].Name()))
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.settleHolds(); err != nil {
		return err
	}
	e.adoptFamilies()
	return e.sweepOwn()
}

func (e *Engine) adoptDir(ctx context.Context, dir string) {
	var vm vmRecord
	if readJSON(filepath.Join(dir, vmJournal), &vm) != nil || vm.Version != journalVersion {
		os.RemoveAll(dir) // died before it had a VM
		return
	}
	e.noteCID(vm.CID)
	var rec boxRecord
	if readJSON(filepath.Join(dir, boxJournal), &rec) != nil || !rec.validIn(dir) {
		e.clearAway(vm.Ref, dir)
		return
	}
	b := newBox(dir, rec.Who, rec.Info, nil)
	b.disks = &ownDisks{lines: rec.Disks}
	if rec.Info.Status == StatusRunning {
		if err := e.adopt(ctx, b, vm); err != nil {
			e.failAdopted(b, vm.Ref, err)
		}
	}
	e.mu.Lock()
	e.boxes[b.info.ID] = b
	e.mu.Unlock()
	e.cfg.Logger.Info("sandbox found", "sandbox", b.info.ID, "status", b.info.Status, "reason", b.info.Reason)
}

func (e *Engine) adopt(ctx context.Context, b *box, vm vmRecord) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	vm.Ref.Dir = b.dir
	line := &guestLine{}
	proc, err := vmmctl.Adopt(ctx, vm.Ref, e.guestPort(line))
	if err != nil {
		return err
	}
	line.proc.Store(proc)
	m := &machine{proc: proc, dir: b.dir, shape: vm.Shape, cid: vm.CID, disks: b.disks}
	b.m, m.agent = m, newAgent(m)
	m.onEnd = func() { e.fail(b, m) }
	e.watch(m)
	return nil
}

// failAdopted records a sandbox whose VM did not live to see this engine, or
// does not answer it.
func (e *Engine) failAdopted(b *box, ref vmmctl.Ref, cause error) {
	if err := ref.Kill(); err != nil {
		e.cfg.Logger.Warn("end a VM that was not adopted", "sandbox", b.info.ID, "err", err)
	}
	b.diedUnseen = true
	b.info.failed(fmt.Sprintf("its VM did not outlive the daemon's restart: %v", cause))
	if err := writeJSON(filepath.Join(b.dir, boxJournal), b.record()); err != nil {
		e.cfg.Logger.Error("write journal", "sandbox", b.info.ID, "err", err)
	}
	e.logFailure(b.info, b.info.Reason, b.dir)
}

// clearAway ends a VM that is nobody's.
func (e *Engine) clearAway(ref vmmctl.Ref, dir string) {
	if err := ref.Kill(); err != nil {
		e.cfg.Logger.Warn("end a VM that is left over", "dir", dir, "err", err)
		return // its directory is kept: the next engine tries again
	}
	os.RemoveAll(dir)
}

// noteVM makes sure that no new VM's directory gets a name that is in use.
func (e *Engine) noteVM(dir string) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(dir, "v"), 10, 32); err == nil {
		e.nextVM.Store(max(e.nextVM.Load(), n))
	}
}

// noteCID makes sure that no new VM gets the context id of an old one.
func (e *Engine) noteCID(cid uint32) {
	for {
		next := e.nextCID.Load()
		if cid < next || e.nextCID.CompareAndSwap(next, cid+1) {
			return
		}
	}
}

// expire removes failed sandboxes that nobody looked after.
func (e *Engine) expire(ctx context.Context) {
	tick := time.NewTicker(min(time.Minute, e.cfg.FailedKeep))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, b := range e.expired() {
				e.killBox(b)
			}
		case <-ctx.Done():
			return
		}
	}
}

// maxFailed is how many failed sandboxes stay listed.
const maxFailed = 1000

func (e *Engine) expired() []*box {
	var failed []Info
	for _, i := range e.List() {
		if i.Status == StatusFailed {
			failed = append(failed, i)
		}
	}
	var out []*box
	for n, i := range failed { // oldest first
		if e.cfg.Now().Sub(e.failedAt(i)) < e.cfg.FailedKeep && len(failed)-n <= maxFailed {
			continue
		}
		e.mu.Lock()
		if b := e.boxes[i.ID]; b != nil {
			out = append(out, b)
		}
		e.mu.Unlock()
	}
	return out
}

// failedAt is when the journal last changed, which is when it failed.
func (e *Engine) failedAt(i Info) time.Time {
	e.mu.Lock()
	b := e.boxes[i.ID]
	e.mu.Unlock()
	if b == nil {
		return e.cfg.Now()
	}
	st, err := os.Stat(filepath.Join(b.dir, boxJournal))
	if err != nil {
		return i.CreatedAt
	}
	return st.ModTime()
}
