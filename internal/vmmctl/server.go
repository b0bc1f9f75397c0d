package vmmctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// BootRequest is Boot's config as it arrives in the VMM process. The machine
// keeps the disks' files; the server closes the others.
type BootRequest struct {
	Kernel, Initrd *os.File // Initrd may be nil
	Cmdline        string
	Disks          []Disk
	CID            uint32
	GenID          [16]byte
}

// RestoreRequest is Restore's config as it arrives in the VMM process.
type RestoreRequest struct {
	Memory  []Segment
	State   *os.File
	Disks   []Disk
	CID     uint32
	GenID   [16]byte
	Prepare bool
	Gate    *os.File // nil: none; the server closes it
	Watch   bool
}

// CaptureRequest is Capture's config as it arrives in the VMM process, which owns the files.
type CaptureRequest struct {
	Memory, State, Index *os.File
	Disks                []*os.File
	Live                 bool
	MaxPause             time.Duration
}

// RebaseRequest is Rebase's argument as it arrives in the VMM process, which owns the files.
type RebaseRequest struct {
	Bases [][]Segment
}

// Handler is the VM behind the control socket. Its methods are called one at a time.
type Handler interface {
	Boot(BootRequest) error
	Restore(RestoreRequest) (RestoreResult, error)
	Pause() error
	Resume() (ResumeResult, error)
	Save(memory, state *os.File, disks []*os.File) (SaveResult, error)
	Capture(CaptureRequest) (CaptureResult, error)
	Captured() error
	Rebase(RebaseRequest) error
	WriteHot(f *os.File) (HotResult, error)
	Populate(f *os.File) (HotResult, error)
	Status() Status
}

// Server is the VMM's end of the control socket. One daemon is connected at a
// time; when a running VM's daemon goes, the next may come.
type Server struct {
	l *net.UnixListener
	h Handler

	mu    sync.Mutex // guards what follows
	conn  *conn      // of the daemon; nil while there is none
	dials map[uint64]chan dialed
	next  uint64
}

type dialed struct {
	file *os.File
	err  error
}

// NewServer serves h on the listening control socket.
func NewServer(l *net.UnixListener, h Handler) *Server {
	return &Server{l: l, h: h, dials: map[uint64]chan dialed{}}
}

// Serve answers daemons until one asks for a stop, or until a daemon goes
// while the VM is no more than a shell, prepared or not.
func (s *Server) Serve() error {
	for {
		c, err := s.l.AcceptUnix()
		if err != nil {
			return fmt.Errorf("accept control connection: %w", err)
		}
		cn := &conn{c: c}
		s.setConn(cn)
		stop := s.serveConn(cn)
		s.setConn(nil)
		c.Close()
		if stop || s.h.Status().State.idle() {
			return nil
		}
	}
}

// setConn changes the connected daemon; dials that the former has not answered are refused.
func (s *Server) setConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	for id, ch := range s.dials {
		ch <- dialed{err: ErrGone}
		delete(s.dials, id)
	}
}

func (s *Server) serveConn(c *conn) (stop bool) {
	if s.h.Status().State == StateShell {
		if c.send(message{Event: eventReady}) != nil {
			return false
		}
	}
	buf := make([]byte, MaxMessage)
	for {
		m, files, err := c.receive(buf)
		if err != nil {
			return false
		}
		if m.Op == opDialed {
			s.finishDial(m, files)
			continue
		}
		answer := message{ID: m.ID}
		result, err := s.serve(m, files)
		if err == nil && result != nil {
			answer.Body, err = json.Marshal(result)
		}
		if err != nil {
			answer.Error = clipError(err.Error())
		}
		if c.send(answer) != nil {
			return false
		}
		if m.Op == opStop {
			return true
		}
	}
}

// clipError keeps an answer within maxAnswer.
func clipError(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return strings.ToValidUTF8(s[:maxErrorText], "") + "…"
}

var errFiles = errors.New("control message has too few descriptors")

// serve runs one request. It owns the files but for disks that a handler took.
func (s *Server) serve(m message, files []*os.File) (result any, err error) {
	switch m.Op {
	case opBoot:
		return nil, s.boot(m.Body, files)
	case opRestore:
		return s.restore(m.Body, files)
	case opCapture:
		return s.capture(m.Body, files)
	case opRebase:
		return nil, s.rebase(m.Body, files)
	}
	defer closeAll(files)
	switch m.Op {
	case opPause:
		return nil, s.h.Pause()
	case opResume:
		return s.h.Resume()
	case opSave:
		if len(files) < 2 {
			return nil, errFiles
		}
		return s.h.Save(files[0], files[1], files[2:])
	case opCaptured:
		return nil, s.h.Captured()
	case opWriteHot, opPopulate:
		return s.hot(m.Op, files)
	case opStatus:
		return s.h.Status(), nil
	case opStop:
		return nil, nil
	}
	return nil, fmt.Errorf("unknown operation %q", m.Op)
}

func (s *Server) boot(raw json.RawMessage, files []*os.File) error {
	var b bootBody
	if err := json.Unmarshal(raw, &b); err != nil {
		closeAll(files)
		return fmt.Errorf("decode request: %w", err)
	}
	t, files, err := b.open(files)
	if err == nil {
		err = fillBases(b.Disks, t)
	}
	if err != nil {
		closeAll(files)
		return err
	}
	disks, rest, err := takeDisks(b.Disks, files)
	defer closeAll(rest)
	if err != nil {
		return err
	}
	if len(rest) < 1 || len(rest) > 2 || len(b.GenID) != 16 {
		closeDisks(disks)
		return errFiles
	}
	r := BootRequest{Kernel: rest[0], Cmdline: b.Cmdline, Disks: disks, CID: b.CID, GenID: [16]byte(b.GenID)}
	if len(rest) == 2 {
		r.Initrd = rest[1]
	}
	return s.h.Boot(r)
}

func (s *Server) restore(raw json.RawMessage, files []*os.File) (*RestoreResult, error) {
	var b restoreBody
	if err := json.Unmarshal(raw, &b); err != nil {
		closeAll(files)
		return nil, fmt.Errorf("decode request: %w", err)
	}
	t, files, err := b.open(files)
	var segments []segmentSpec
	if err == nil {
		segments, err = t.next(b.Memory)
	}
	if err == nil {
		err = fillBases(b.Disks, t)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	disks, rest, err := takeDisks(b.Disks, files)
	defer closeAll(rest)
	if err != nil {
		return nil, err
	}
	memory := 1 // index of the first memory file: before it are the state and perhaps a gate
	if b.Gate {
		memory++
	}
	if b.MemoryFiles < 0 || len(rest) != memory+b.MemoryFiles || len(b.GenID) != 16 {
		closeDisks(disks)
		return nil, errFiles
	}
	r := RestoreRequest{State: rest[0], Disks: disks, CID: b.CID, GenID: [16]byte(b.GenID), Prepare: b.Prepare, Watch: b.Watch}
	if b.Gate {
		r.Gate = rest[1]
	}
	r.Memory = make([]Segment, 0, len(segments))
	for _, spec := range segments {
		seg := Segment{FileOffset: spec.FileOffset, Offset: spec.Offset, Length: spec.Length}
		if spec.File >= b.MemoryFiles {
			closeDisks(disks)
			return nil, errFiles
		}
		if spec.File >= 0 {
			seg.File = rest[memory+spec.File]
		}
		r.Memory = append(r.Memory, seg)
	}
	res, err := s.h.Restore(r)
	return &res, err
}

func (s *Server) capture(raw json.RawMessage, files []*os.File) (*CaptureResult, error) {
	var b captureBody
	err := json.Unmarshal(raw, &b)
	if err == nil && len(files) < 3 {
		err = errFiles
	}
	if err != nil {
		closeAll(files)
		return nil, fmt.Errorf("decode request: %w", err)
	}
	r := CaptureRequest{
		Memory: files[0], State: files[1], Index: files[2], Disks: files[3:], Live: b.Live, MaxPause: time.Duration(b.MaxPauseNano),
	}
	res, err := s.h.Capture(r)
	return &res, err
}

func (s *Server) rebase(raw json.RawMessage, files []*os.File) error {
	r, files, err := rebaseRequest(raw, files)
	if err != nil {
		closeAll(files)
		return err
	}
	return s.h.Rebase(r)
}

// rebaseRequest gives back the files that are still the caller's to close.
func rebaseRequest(raw json.RawMessage, files []*os.File) (r RebaseRequest, _ []*os.File, err error) {
	var b rebaseBody
	if err := json.Unmarshal(raw, &b); err != nil {
		return r, files, fmt.Errorf("decode request: %w", err)
	}
	t, files, err := b.open(files)
	if err != nil {
		return r, files, err
	}
	if len(b.Files) != len(b.Segments) {
		return r, files, errFiles
	}
	rest := files
	for i, n := range b.Files {
		list, err := t.next(b.Segments[i])
		if err != nil {
			return r, files, err
		}
		if n < 0 || n > len(rest) {
			return r, files, errFiles
		}
		disk, err := takeDisk(diskSpec{Own: true, Base: list}, append([]*os.File{nil}, rest[:n]...))
		if err != nil {
			return r, files, err
		}
		r.Bases, rest = append(r.Bases, disk.Base), rest[n:]
	}
	if len(rest) > 0 {
		return r, files, errFiles
	}
	return r, nil, nil
}

// SendExit tells the daemon, if there is one, how the VM ended.
func (s *Server) SendExit(e Exit) {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return
	}
	e.Reason = clipError(e.Reason)
	if body, err := json.Marshal(e); err == nil {
		c.send(message{Event: eventExit, Body: body})
	}
}

// DialHost asks the daemon for a connection to a host port. Without a daemon it is refused.
func (s *Server) DialHost(ctx context.Context, port uint32) (net.Conn, error) {
	body, err := json.Marshal(dialBody{Port: port})
	if err != nil {
		return nil, err
	}
	ch := make(chan dialed, 1)
	s.mu.Lock()
	c := s.conn
	if c == nil {
		s.mu.Unlock()
		return nil, ErrGone
	}
	s.next++
	id := s.next
	s.dials[id] = ch
	s.mu.Unlock()
	if err := c.send(message{ID: id, Event: eventDial, Body: body}); err != nil {
		s.mu.Lock()
		delete(s.dials, id)
		s.mu.Unlock()
		return nil, err
	}
	select {
	case d := <-ch:
		if d.err != nil {
			return nil, d.err
		}
		defer d.file.Close()
		return net.FileConn(d.file)
	case <-ctx.Done():
		s.abandon(id, ch)
		return nil, context.Cause(ctx)
	}
}

// abandon forgets a dial, and closes what was delivered meanwhile.
func (s *Server) abandon(id uint64, ch chan dialed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.dials, id)
	select {
	case d := <-ch:
		if d.file != nil {
			d.file.Close()
		}
	default:
	}
}

func (s *Server) finishDial(m message, files []*os.File) {
	s.mu.Lock()
	defer s.mu.Unlock() // so that abandon finds either the dial or its answer
	ch := s.dials[m.ID]
	delete(s.dials, m.ID)
	switch {
	case ch == nil:
		closeAll(files)
	case m.Error != "" || len(files) != 1:
		closeAll(files)
		ch <- dialed{err: fmt.Errorf("the host refused the connection: %s", m.Error)}
	default:
		ch <- dialed{file: files[0]}
	}
}
