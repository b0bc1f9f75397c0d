package vmmctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Names of the files in a VM's run directory.
const (
	ControlSocket = "control.sock" // SEQPACKET, this package's protocol
	VsockSocket   = "vsock.sock"   // stream: "CONNECT <port>\n", answered by "OK <n>\n"
	ConsoleLog    = "console.log"  // the serial console, bounded
)

// BootConfig is what a VM boots.
type BootConfig struct {
	Kernel  *os.File // ELF vmlinux
	Initrd  *os.File // may be nil
	Cmdline string
	Disks   []Disk // as many as the shape says
	CID     uint32 // vsock context id, 3 or more
	GenID   [16]byte
}

// Segment is a run of guest memory in linear order and where its content is.
type Segment struct {
	File       *os.File // nil: zero pages
	FileOffset int64    // all in bytes, multiples of the page size
	Offset     int64
	Length     int64
}

// RestoreConfig is what a VM is restored from.
type RestoreConfig struct {
	Memory []Segment // later segments map over earlier ones
	State  *os.File
	Disks  []Disk
	CID    uint32
	GenID  [16]byte // new VM generation ID
	// Prepare: nobody has asked for this VM yet. Until Resume has returned it ends with its daemon, as a shell does.
	// Without a Gate it is left to Resume.
	Prepare bool
	Gate    *os.File // start the vCPUs when this gate opens (package startgate); nil: at once
	Watch   bool     // so that WriteHot is exact; costs the guest some time
}

// HostDialer opens the host end of a connection that the guest makes to a host
// port. The file is closed by the caller. An error refuses the connection.
type HostDialer func(port uint32) (*os.File, error)

// Process is a VMM process, spawned or adopted. Its methods are safe for
// concurrent use. Done is closed when it has ended and is reaped.
type Process struct {
	pid       int
	startTime uint64
	conn      *conn
	dial      HostDialer

	done    chan struct{}
	drained chan struct{} // closed when nothing more can be read from the control socket

	mu      sync.Mutex // guards what follows
	dir     string
	nextID  uint64
	pending map[uint64]chan message
	gone    bool // the control socket is closed
	exit    *Exit
}

// PID is the process's id on this host.
func (p *Process) PID() int { return p.pid }

// Dir is the VM's run directory. The caller removes it after Done.
func (p *Process) Dir() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dir
}

// Moved says that the run directory has another name now. The process itself
// knows its files by their descriptors.
func (p *Process) Moved(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dir = dir
}

// VsockPath is the Unix socket through which guest ports are reached.
func (p *Process) VsockPath() string { return filepath.Join(p.Dir(), VsockSocket) }

// Done is closed after the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how the VM ended. Valid after Done.
func (p *Process) Exit() Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit == nil {
		return Exit{Kind: ExitKilled, Reason: "the VMM process ended without a word"}
	}
	return *p.exit
}

// Kill ends the process at once; the kernel frees the VM. Wait for Done.
func (p *Process) Kill() error {
	select {
	case <-p.done:
		return nil
	default:
		err := unix.Kill(p.pid, unix.SIGKILL)
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return err
	}
}

// Release closes the control connection without touching a running VM, so that
// another daemon can adopt it. A shell ends when its connection is closed.
func (p *Process) Release() { p.conn.c.Close() }

// Boot starts a kernel. It returns once the vCPUs run; the guest's readiness is the caller's to await.
func (p *Process) Boot(ctx context.Context, c BootConfig) error {
	files := []*os.File{c.Kernel}
	if c.Initrd != nil {
		files = append(files, c.Initrd)
	}
	body := bootBody{Cmdline: c.Cmdline, CID: c.CID, GenID: c.GenID[:]}
	body.Disks, files = addDisks(c.Disks, files)
	files, closeTable, err := body.pack(files, basesOf(body.Disks)...)
	if err != nil {
		return fmt.Errorf("boot VM: %w", err)
	}
	defer closeTable()
	return p.call(ctx, opBoot, body, nil, files...)
}

// Restore loads a snapshot into a shell and, unless it is to Prepare or behind a Gate, runs it.
func (p *Process) Restore(ctx context.Context, c RestoreConfig) (RestoreResult, error) {
	body := restoreBody{CID: c.CID, GenID: c.GenID[:], Prepare: c.Prepare, Watch: c.Watch, Gate: c.Gate != nil}
	files := []*os.File{c.State}
	if c.Gate != nil {
		files = append(files, c.Gate)
	}
	memory, mapped := specs(c.Memory)
	body.Memory, body.MemoryFiles = len(memory), len(mapped)
	files = append(files, mapped...)
	body.Disks, files = addDisks(c.Disks, files)
	files, closeTable, err := body.pack(files, append([][]segmentSpec{memory}, basesOf(body.Disks)...)...)
	if err != nil {
		return RestoreResult{}, fmt.Errorf("restore VM: %w", err)
	}
	defer closeTable()
	var r RestoreResult
	return r, p.call(ctx, opRestore, body, &r, files...)
}

// Pause stops the vCPUs and quiesces the devices.
func (p *Process) Pause(ctx context.Context) error { return p.call(ctx, opPause, nil, nil) }

// Resume lets a paused VM run on, or a prepared one begin. Of one behind a gate it waits until that has opened.
func (p *Process) Resume(ctx context.Context) (ResumeResult, error) {
	var r ResumeResult
	return r, p.call(ctx, opResume, nil, &r)
}

// Save writes a paused VM's memory (sparse, linear) and state, and each disk that
// has an own file whole into one of disks (sparse, flat), in order. All are empty;
// memory and disks begin at their files' present positions. The caller makes them durable.
func (p *Process) Save(ctx context.Context, memory, state *os.File, disks ...*os.File) (SaveResult, error) {
	var r SaveResult
	return r, p.call(ctx, opSave, nil, &r, append([]*os.File{memory, state}, disks...)...)
}

// CaptureConfig is where a capture goes, and how.
type CaptureConfig struct {
	Memory *os.File // becomes as large as the memory; own pages at their offsets, the rest holes
	State  *os.File
	Index  *os.File // which pages are in Memory, as a set of package hotset
	// Disks are empty files, one per disk with an own file, in order: the disk goes
	// on there. When Captured has returned, the own file until now holds what is the disk's own of
	// that time (package cowdisk). Status.Rotations tells whether it went on, also after an error.
	Disks []*os.File
	Live  bool          // copy while the guest runs, and pause it for the rest only
	Max   time.Duration // of the pause; 0: no limit
}

// Capture takes a running VM's memory and state at one instant. It returns when
// the VM runs again; Captured waits until the files are whole. An error that
// says ErrPause means that the limit could not be kept. The VM runs on in any case.
func (p *Process) Capture(ctx context.Context, c CaptureConfig) (CaptureResult, error) {
	var r CaptureResult
	files := []*os.File{c.Memory, c.State, c.Index}
	files = append(files, c.Disks...)
	return r, p.call(ctx, opCapture, captureBody{Live: c.Live, MaxPauseNano: int64(c.Max)}, &r, files...)
}

// Captured waits until the last capture's files are whole. The caller makes them
// durable. Called again it ends what a capture that failed has not, of the own files before.
func (p *Process) Captured(ctx context.Context) error { return p.call(ctx, opCaptured, nil, nil) }

// Rebase puts another base of the same content under each disk with an own file,
// in order, and lets go of the files before it. The VM may run. Whether it takes
// place or not, the disks read the same.
func (p *Process) Rebase(ctx context.Context, bases [][]Segment) error {
	var body rebaseBody
	var files []*os.File
	var lists [][]segmentSpec
	for _, b := range bases {
		list, under := specs(b)
		lists, files = append(lists, list), append(files, under...)
		body.Files, body.Segments = append(body.Files, len(under)), append(body.Segments, len(list))
	}
	files, closeTable, err := body.pack(files, lists...)
	if err != nil {
		return fmt.Errorf("rebase VM: %w", err)
	}
	defer closeTable()
	return p.call(ctx, opRebase, body, nil, files...)
}

// Status asks the VMM for its account of itself.
func (p *Process) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, p.call(ctx, opStatus, nil, &s)
}

// Stop ends the VM in an orderly way: its console is flushed, then the process exits.
func (p *Process) Stop(ctx context.Context) error { return p.call(ctx, opStop, nil, nil) }

func (p *Process) call(ctx context.Context, op string, body, result any, files ...*os.File) error {
	m := message{Op: op}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode %s: %w", op, err)
		}
		m.Body = b
	}
	answer := make(chan message, 1)
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return fmt.Errorf("%s VM: %w", op, ErrGone)
	}
	p.nextID++
	m.ID = p.nextID
	p.pending[m.ID] = answer
	p.mu.Unlock()
	if err := p.conn.send(m, files...); err != nil {
		p.forget(m.ID)
		if errors.Is(err, errLimit) {
			return fmt.Errorf("%s VM: %w", op, err)
		}
		return fmt.Errorf("%s VM: %w (%w)", op, ErrGone, err)
	}
	select {
	case a, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s VM: %w", op, ErrGone)
		case a.Error != "":
			return fmt.Errorf("%s VM: %s", op, a.Error)
		case result != nil:
			return json.Unmarshal(a.Body, result)
		}
		return nil
	case <-ctx.Done():
		p.forget(m.ID)
		return fmt.Errorf("%s VM: %w", op, context.Cause(ctx))
	}
}

func (p *Process) forget(id uint64) {
	p.mu.Lock()
	delete(p.pending, id)
	p.mu.Unlock()
}

// readLoop delivers answers and events until the socket closes.
func (p *Process) readLoop(ready chan<- error) {
	defer close(p.drained)
	buf := make([]byte, maxAnswer)
	for {
		m, files, err := p.conn.receive(buf)
		if err != nil {
			break
		}
		closeAll(files) // the VMM sends none
		switch m.Event {
		case "":
			p.deliver(m)
		case eventReady:
			if ready != nil {
				ready <- nil
				ready = nil
			}
		case eventExit:
			var e Exit
			if json.Unmarshal(m.Body, &e) == nil {
				p.setExit(e)
			}
		case eventDial:
			p.answerDial(m)
		}
	}
	if ready != nil {
		ready <- ErrGone
	}
	p.conn.c.Close()
	p.mu.Lock()
	p.gone = true
	for id, ch := range p.pending {
		close(ch)
		delete(p.pending, id)
	}
	p.mu.Unlock()
}

func (p *Process) deliver(m message) {
	p.mu.Lock()
	ch := p.pending[m.ID]
	delete(p.pending, m.ID)
	p.mu.Unlock()
	if ch != nil {
		ch <- m
	}
}

// setExit keeps the first word: the VMM's own over what the kernel says later.
func (p *Process) setExit(e Exit) {
	p.mu.Lock()
	if p.exit == nil {
		p.exit = &e
	}
	p.mu.Unlock()
}

func (p *Process) answerDial(m message) {
	var d dialBody
	if json.Unmarshal(m.Body, &d) != nil {
		return
	}
	answer := message{ID: m.ID, Op: opDialed}
	if p.dial == nil {
		p.conn.send(answer)
		return
	}
	f, err := p.dial(d.Port)
	if err != nil {
		answer.Error = err.Error()
		p.conn.send(answer)
		return
	}
	p.conn.send(answer, f)
	f.Close()
}

func connect(dir string) (*conn, error) {
	addr := &net.UnixAddr{Name: filepath.Join(dir, ControlSocket), Net: "unixpacket"}
	c, err := net.DialUnix("unixpacket", nil, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to VMM in %s: %w", dir, err)
	}
	return &conn{c: c}, nil
}
