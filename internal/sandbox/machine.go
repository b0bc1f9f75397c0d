package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/agentproto/agentclient"
	"github.com/forkd/forkd/internal/startgate"
	"github.com/forkd/forkd/internal/undo"
	"github.com/forkd/forkd/internal/vmmctl"
	"github.com/forkd/forkd/internal/vmspec"
)

// firstCID is the lowest vsock context id of a guest; 0 to 2 have a meaning of their own.
const firstCID = 3

// beginCIDs begins to number guests at a random place. A snapshot of a running
// guest may outlive the daemon, and its agent tells a clone from the source by
// the context id alone: none may come again, though nobody kept a list.
func (e *Engine) beginCIDs() error {
	b, err := e.random(4)
	if err != nil {
		return err
	}
	e.nextCID.Store(firstCID + binary.LittleEndian.Uint32(b)>>1) // half of them are left to count through
	return nil
}

// spawnTimeout bounds the start of a VMM process.
const spawnTimeout = 30 * time.Second

// machine is a VMM process with its run directory. Exactly one party owns it at
// a time: whoever makes it, then the pool, a fork under way, or a box. The owner
// ends it with discard.
type machine struct {
	proc  *vmmctl.Process
	dir   string
	shape vmspec.Shape
	cid   uint32
	disks *ownDisks // what it writes to, see owndisk.go
	// How it was restored; set by load and restoreInto.
	genID    [16]byte
	restored vmmctl.RestoreResult
	pooled   bool                // it stood ready as a shell
	shelf    poolKey             // of the pool that it was made for
	prepared bool                // it is restored already, behind a gate of its own
	gate     *startgate.Gate     // of a prepared one, until it has begun
	agent    *agentclient.Client // set by its owner when there is an agent to speak to
	// replaced says, once the VM was put aside for another one of the same
	// sandbox, how that came. It is set before the VM is ended.
	replaced atomic.Pointer[string]

	// onEnd is called once if the process ends while it is set. Guarded by Engine.mu.
	onEnd func()
}

func (e *Engine) vmsDir() string { return filepath.Join(e.cfg.RunDir, "vm") }

// spawn makes a shell. Its reference is in the journal when spawn returns, so
// that the next engine can end it; before that it ends by itself with us. With
// dial nil the guest can ask for forks once it is listed, and reaches nothing else.
func (e *Engine) spawn(ctx context.Context, shape vmspec.Shape, dial vmmctl.HostDialer) (*machine, error) {
	return e.spawnVMM(ctx, vmmctl.SpawnConfig{Shape: shape, Dial: dial})
}

func (e *Engine) spawnVMM(ctx context.Context, c vmmctl.SpawnConfig) (_ *machine, err error) {
	var u undo.Stack
	defer u.OnError(&err)
	dir, err := e.newVMDir()
	if err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	u.Push(func() { os.RemoveAll(dir) })
	line := &guestLine{}
	if c.Dial == nil {
		c.Dial = e.guestPort(line)
	}
	stderr, err := os.OpenFile(filepath.Join(dir, vmmLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	defer stderr.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, spawnTimeout, problem(ErrTimeout, "", "the VMM process was not ready within %s", spawnTimeout))
	defer cancel()
	c.Binary, c.Dir, c.KVM, c.Log = e.cfg.VMMBinary, dir, e.kvm, stderr
	proc, err := vmmctl.Spawn(ctx, c)
	if err != nil {
		if tail := tailLines(filepath.Join(dir, vmmLog), 5); tail != "" {
			err = fmt.Errorf("%w; it said: %s", err, tail)
		}
		return nil, err
	}
	line.proc.Store(proc)
	m := &machine{proc: proc, dir: dir, shape: c.Shape, cid: e.nextCID.Add(1) - 1, disks: &ownDisks{}}
	u.Push(func() { end(m) })
	if err := writeJSON(filepath.Join(dir, vmJournal), vmRecord{Version: journalVersion, Ref: proc.Ref(), Shape: c.Shape, CID: m.cid}); err != nil {
		return nil, fmt.Errorf("write journal: %w", err)
	}
	e.watch(m)
	return m, nil
}

func (e *Engine) newVMDir() (string, error) {
	for {
		dir := filepath.Join(e.vmsDir(), fmt.Sprintf("v%08d", e.nextVM.Add(1)))
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

// watch tells the owner when the process ends.
func (e *Engine) watch(m *machine) {
	e.watchers.Go(func() {
		select {
		case <-m.proc.Done():
		case <-e.released:
			return
		}
		e.mu.Lock()
		tell := m.onEnd
		m.onEnd = nil
		e.mu.Unlock()
		if tell != nil {
			tell()
		}
	})
}

// own makes tell the one that learns of the end. It reports false, and tells
// nobody, when the process has ended already.
func (e *Engine) own(m *machine, tell func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-m.proc.Done():
		m.onEnd = nil
		return false
	default:
		m.onEnd = tell
		return true
	}
}

func alive(m *machine) bool {
	select {
	case <-m.proc.Done():
		return false
	default:
		return true
	}
}

// end kills the process and waits until the kernel has taken it away.
func end(m *machine) {
	m.proc.Kill()
	<-m.proc.Done()
	m.proc.Release()
}

// openGate lets a prepared machine run; another one has no gate of its own.
func (m *machine) openGate() error {
	if m.gate == nil {
		return nil
	}
	return m.gate.Open()
}

// closeGate frees the gate, open or shut.
func (m *machine) closeGate() {
	if m.gate != nil {
		m.gate.Close()
		m.gate = nil
	}
}

// discard ends a machine and removes all it left.
func (e *Engine) discard(m *machine) {
	e.own(m, nil)
	end(m)
	m.closeGate()
	removeVM(m.dir, m.disks.paths())
}

func (e *Engine) discardAll(ms []*machine) {
	each(len(ms), 4*e.cfg.Concurrency, func(i int) { e.discard(ms[i]) })
}
