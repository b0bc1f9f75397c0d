package vmproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// StallGrace is how long a lack of disk space may last before it ends calls. A VM without space for
// its disk on the host pauses itself, and resumes when there is space. Its sandbox is listed as
// stalled meanwhile. New calls are refused; running calls end only after StallGrace, since a short
// lack of space should not kill running programs.
const StallGrace = 2 * time.Second

// maxDiskLog limits the log lines about one VM's disks: its VMM can report as often as it likes.
const maxDiskLog = 100

// vmHealth is the health of a VM's disks as reported by its VMM.
type vmHealth struct {
	mu      sync.Mutex // taken last
	health  vmm.Health
	lasting *time.Timer // fires after StallGrace without space; nil while there is space
	over    bool        // it has fired
	outage  string      // why content of its snapshot does not arrive; empty if it does
	calls   map[*stallable]struct{}
}

// stallable is a running call that a lasting lack of space ends.
type stallable struct{ end func(full string) }

// watchHealth records the VMM's reports about its disks.
func (m *VM) watchHealth() {
	var changes atomic.Int32
	m.Proc.OnHealth(func(h vmm.Health) {
		before := m.NoteHealth(h)
		if h == before || changes.Add(1) > maxDiskLog {
			return
		}
		switch log, pid := m.sup.cfg.Log, m.Proc.PID(); {
		case h.Lost != before.Lost:
			log.Error("a sandbox's disk has lost writes", "pid", pid, "err", h.Lost)
		case h.Hang != before.Hang && h.Hang != "":
			log.Error("the kernel of a sandbox's guest hangs", "pid", pid, "at", h.Hang)
		case h.Hang != before.Hang:
			log.Info("the kernel of a sandbox's guest runs again", "pid", pid)
		case h.Full != "" && before.Full == "":
			log.Warn("a sandbox is paused: no room on the host for its disk", "pid", pid, "err", h.Full)
		case h.Full == "" && before.Full != "":
			log.Info("a sandbox runs again: its disk has space", "pid", pid)
		}
	})
}

// NoteHealth records a report of the VMM about its disks, unless a newer one was recorded already.
func (m *VM) NoteHealth(h vmm.Health) (before vmm.Health) { return m.health.set(h) }

// Calls returns the number of running calls into the guest that a lack of space would end.
func (m *VM) Calls() int {
	m.health.mu.Lock()
	defer m.health.mu.Unlock()
	return len(m.health.calls)
}

func (d *vmHealth) set(h vmm.Health) (before vmm.Health) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.Seq < d.health.Seq { // a newer report was recorded
		return h
	}
	before, d.health = d.health, h
	switch {
	case h.Full != "" && d.lasting == nil:
		d.lasting = time.AfterFunc(StallGrace, func() { d.lasted(h.Seq) })
	case h.Full == "" && d.lasting != nil:
		d.lasting.Stop()
		d.lasting, d.over = nil, false
	}
	return before
}

// lasted ends the running calls, unless there has been space since.
func (d *vmHealth) lasted(seq int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lasting == nil || d.health.Full == "" || d.health.Seq < seq {
		return
	}
	d.over = true
	for c := range d.calls {
		c.end(d.health.Full)
	}
	d.calls = nil
}

func (d *vmHealth) get() vmm.Health {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.health
}

// during calls end, at most once, if a lasting lack of space occurs before done is called. end must
// not block.
func (d *vmHealth) during(end func(full string)) (done func()) {
	c := &stallable{end}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		end(d.health.Full)
		return func() {}
	}
	if d.calls == nil {
		d.calls = map[*stallable]struct{}{}
	}
	d.calls[c] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.calls, c)
	}
}

// WhileRoom returns a context for waiting on a guest. It ends, with the reason, if the guest stalls
// for lack of disk space. who is the caller's name for the guest.
func (m *VM) WhileRoom(ctx context.Context, who string) (context.Context, func()) {
	if m == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := m.health.during(func(full string) { cancel(NoRoom(who, full)) })
	return ctx, func() { done(); cancel(nil) }
}

// HasRoom returns an error if the guest is stalled for lack of disk space.
func (m *VM) HasRoom(who string) error {
	if full := m.health.get().Full; full != "" {
		return NoRoom(who, full)
	}
	return nil
}

// NoRoom returns the error for a guest stalled for lack of disk space. full is the VMM's message.
func NoRoom(who, full string) error {
	err := sandbox.Errorf(sandbox.ErrNoSpace, stallOf(full), "%s is %s", who, pausedReason(full))
	if id, ok := strings.CutPrefix(who, "sandbox "); ok {
		return sandbox.Detailed(err, "sandbox", id)
	}
	return err
}

func stallOf(full string) sandbox.Reason {
	if atLimit(full) {
		return sandbox.ReasonDiskLimit
	}
	return sandbox.ReasonDiskNoRoom
}

// atLimit reports whether a disk has reached its own limit, as opposed to a full host.
func atLimit(full string) bool { return strings.Contains(full, overlay.LimitReached) }

func pausedReason(full string) string {
	if atLimit(full) {
		return fmt.Sprintf("paused: its disk is full (%s)", full)
	}
	return fmt.Sprintf("paused: no room on the host for its disk (%s)", full)
}

// Intact returns an error if a disk has lost writes and must not be branched.
func (m *VM) Intact(who string) error {
	if lost := m.health.get().Lost; lost != "" {
		return LostWrites("%s cannot be branched: %s", who, lostWarning(lost))
	}
	return nil
}

// LostWrites returns the error for a disk that has lost writes.
func LostWrites(format string, args ...any) error {
	return sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonDiskLostWrites, format, args...)
}

func lostWarning(lost string) string {
	return fmt.Sprintf("its disk has lost writes (%s), and takes no more", lost)
}

func hangWarning(hang string) string {
	return fmt.Sprintf("guest kernel hangs: %s; roll the sandbox back or kill it", hang)
}

// Describe adds the health of a VM's disks to its sandbox's Info.
func (m *VM) Describe(i sandbox.Info) sandbox.Info {
	h := m.health.get()
	if h.Full != "" && i.Status == sandbox.StatusRunning {
		i.Status, i.Reason, i.Stall = sandbox.StatusStalled, pausedReason(h.Full), stallOf(h.Full)
	}
	if o := m.Outage(); o != "" && i.Status == sandbox.StatusRunning {
		i.Status, i.Reason = sandbox.StatusStalled, "paused: "+o
	}
	if i.Hang = h.Hang; h.Hang != "" {
		i.Warning = hangWarning(h.Hang)
	}
	if h.Lost != "" {
		i.Warning = lostWarning(h.Lost)
	}
	return i
}

// noSpaceConn is a stream into a guest that breaks when the guest stalls for lack of disk space, or
// when its VM is replaced.
type noSpaceConn struct {
	net.Conn
	vm     *VM
	id     string // of the sandbox
	done   func()
	noRoom atomic.Pointer[error] // nil unless it was broken for that
}

// WhileRoomConn breaks a stream into a sandbox's guest when the guest stalls for lack of disk space.
// Read then returns the reason, and also if the stream broke off because of a pause or a rollback.
func (m *VM) WhileRoomConn(c net.Conn, id string) net.Conn {
	r := &noSpaceConn{Conn: c, vm: m, id: id}
	r.done = m.health.during(func(full string) {
		err := NoRoom("sandbox "+id, full)
		r.noRoom.Store(&err) // before the close, which ends a pending Read
		c.Close()
	})
	return r
}

// Read implements net.Conn.
func (c *noSpaceConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil {
		return n, nil
	}
	if why := c.noRoom.Load(); why != nil {
		return n, *why
	}
	if why := c.vm.ReplacedError(c.id); why != nil {
		return n, why
	}
	return n, err
}

// CloseWrite closes the write direction.
func (c *noSpaceConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close implements net.Conn.
func (c *noSpaceConn) Close() error {
	c.done()
	return c.Conn.Close()
}
