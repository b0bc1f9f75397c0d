package sandbox

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/forkd/forkd/internal/agentproto"
	"github.com/forkd/forkd/internal/agentproto/agentclient"
	"github.com/forkd/forkd/internal/agentproto/forkwire"
	"github.com/forkd/forkd/internal/failpoint"
	"github.com/forkd/forkd/internal/sandbox/forktree"
	"github.com/forkd/forkd/internal/vmmctl"
)

// box is one listed sandbox. Its states: running, then failed or killed; failed,
// then killed.
type box struct {
	dir       string
	who       persona
	branching chan struct{} // holds a value while a branch or a rollback is under way
	gone      chan struct{} // closed when killed and removed
	// life ends when somebody begins to kill the sandbox; what is being made for it need not go on.
	life context.Context
	die  context.CancelCauseFunc
	// diedUnseen is set of a sandbox whose VM ended between two daemons.
	diedUnseen bool

	// files serialises the writers of dir: the failure's record, the removal and
	// a rollback's exchange. Lock order: files, then Engine.mu.
	files sync.Mutex

	// Guarded by Engine.mu:
	info    Info
	m       *machine  // nil when failed
	disks   *ownDisks // as machine.disks
	killing bool
	family  *forktree.Family // see familyOf
	calls   int              // connections of its guest to agentproto.ForkPort
}

// newBox is a sandbox that nobody knows yet.
func newBox(dir string, who persona, info Info, m *machine) *box {
	b := &box{dir: dir, who: who, branching: make(chan struct{}, 1), gone: make(chan struct{}), info: info, m: m, disks: &ownDisks{}}
	b.life, b.die = context.WithCancelCause(context.Background())
	if m != nil {
		b.disks = m.disks
	}
	return b
}

// turn waits until no branch or rollback of the sandbox is under way.
func (b *box) turn(ctx context.Context) (leave func(), err error) {
	select {
	case b.branching <- struct{}{}:
		return func() { <-b.branching }, nil
	case <-ctx.Done():
		return nil, ended(ctx, context.Cause(ctx))
	}
}

func newAgent(m *machine) *agentclient.Client {
	path := m.proc.VsockPath()
	return agentclient.New(func(ctx context.Context) (net.Conn, error) {
		return vmmctl.DialVsock(ctx, path, agentproto.AgentPort)
	})
}

// record is what the journal keeps of a box. Engine.mu is held, or nobody else knows the box.
func (b *box) record() boxRecord {
	return boxRecord{Version: journalVersion, Dir: filepath.Base(b.dir), Info: b.info, Who: b.who, Disks: b.disks.list()}
}

// admit lists a sandbox whose VM runs. The journal knows it first.
func (e *Engine) admit(b *box) error {
	if err := writeJSON(filepath.Join(b.dir, boxJournal), b.record()); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	e.kidBorn(b.info)
	failpoint.Here(failpoint.ForkRecorded)
	e.mu.Lock()
	_, taken := e.boxes[b.info.ID]
	if !taken {
		e.boxes[b.info.ID] = b
	}
	e.mu.Unlock()
	if taken {
		e.kidUnborn(b.info)
		return fmt.Errorf("id %s is taken: %w", b.info.ID, ErrConflict)
	}
	m := b.m
	if !e.own(m, func() { e.fail(b, m) }) {
		e.mu.Lock()
		delete(e.boxes, b.info.ID)
		e.mu.Unlock()
		e.kidUnborn(b.info)
		return endError(m)
	}
	return nil
}

// keepRecord writes a listed sandbox's journal anew.
func (e *Engine) keepRecord(b *box) error {
	b.files.Lock()
	defer b.files.Unlock()
	e.mu.Lock()
	rec := b.record()
	e.mu.Unlock()
	if err := writeJSON(filepath.Join(b.dir, boxJournal), rec); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// fail records that a sandbox's VM ended by itself, if it has not another one by now.
func (e *Engine) fail(b *box, m *machine) {
	b.files.Lock()
	defer b.files.Unlock()
	e.mu.Lock()
	if b.killing || b.m != m {
		e.mu.Unlock()
		return
	}
	rec := b.record()
	e.mu.Unlock()
	rec.Info.failed(endReason(m))
	if err := writeJSON(filepath.Join(b.dir, boxJournal), rec); err != nil {
		e.cfg.Logger.Error("write journal", "sandbox", rec.Info.ID, "err", err)
	}
	m.proc.Release()
	m.agent.Close()
	e.mu.Lock()
	b.info, b.m = rec.Info, nil
	e.mu.Unlock()
	e.kidEnded(rec.Info, forkwire.Died, rec.Info.Reason)
	e.logFailure(rec.Info, rec.Info.Reason, b.dir)
}

// killBox ends a sandbox and waits until nothing of it is left. Whoever comes
// second waits for the first.
func (e *Engine) killBox(b *box) {
	e.mu.Lock()
	if b.killing {
		e.mu.Unlock()
		<-b.gone
		return
	}
	b.killing = true
	e.mu.Unlock()
	b.die(errKilled)
	b.files.Lock()
	defer b.files.Unlock()
	if m := b.m; m != nil { // no more writers: fail and rollback give up on a box that is being killed
		m.agent.Close()
		e.killVM(b.info, m)
	} else {
		removeVM(b.dir, b.disks.paths())
	}
	e.releaseVM(b)
	e.mu.Lock()
	delete(e.boxes, b.info.ID)
	e.mu.Unlock()
	e.forgetFamily(b.info.ID)
	e.kidEnded(b.info, forkwire.Killed, "")
	close(b.gone)
}

// killVM discards a sandbox's VM. One that had ended by itself is told of: fail,
// which learns of it at about the same time, leaves a sandbox that is being killed alone.
func (e *Engine) killVM(info Info, m *machine) {
	failed := !alive(m)
	e.own(m, nil)
	end(m)
	switch m.proc.Exit().Kind { // the VMM's own word, if it had said it
	case vmmctl.ExitPowerOff, vmmctl.ExitReset, vmmctl.ExitFault:
		failed = true
	}
	if failed {
		e.logFailure(info, endReason(m), m.dir)
	}
	removeVM(m.dir, m.disks.paths())
}

// find returns a listed sandbox.
func (e *Engine) find(id string) (*box, Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[id]
	if b == nil || b.killing {
		return nil, Info{}, problem(ErrNotFound, "", "sandbox %q not found", clip(id))
	}
	return b, b.info, nil
}

// running returns a sandbox and its VM, or why it has none.
func (e *Engine) running(id string) (*box, *machine, error) {
	b, info, err := e.find(id)
	if err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	m := b.m
	e.mu.Unlock()
	if m == nil {
		return nil, nil, problem(ErrGuestGone, "kill it and fork another", "sandbox %s has failed: %s", id, info.Reason)
	}
	return b, m, nil
}

// List returns all sandboxes, oldest first, failed ones included.
func (e *Engine) List() []Info {
	e.mu.Lock()
	out := make([]Info, 0, len(e.boxes))
	for _, b := range e.boxes {
		if !b.killing {
			out = append(out, b.info)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(out, func(a, b Info) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// Get returns one sandbox.
func (e *Engine) Get(id string) (Info, error) {
	_, info, err := e.find(id)
	return info, err
}

// Kill ends a sandbox, running or failed, and waits until nothing of it is left.
// Of two callers at once both succeed; later ones get ErrNotFound.
func (e *Engine) Kill(ctx context.Context, id string) error {
	_, done, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	e.mu.Lock()
	b := e.boxes[id]
	e.mu.Unlock()
	if b == nil {
		return problem(ErrNotFound, "", "sandbox %q not found", clip(id))
	}
	e.killBox(b)
	return nil
}

// errKilled ends what was under way for a sandbox.
var errKilled = problem(ErrConflict, "", "the sandbox was killed meanwhile")

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
