package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Server is the VMM's end of the control socket. One daemon is connected at a time. When the daemon
// of a running VM goes, another may connect.
type Server struct {
	// Confinement is reported to the daemon when the process is ready. It is set before Serve.
	Confinement seccomp.Confinement

	l *net.UnixListener
	h Handler

	mu    sync.Mutex             // guards the fields below
	conn  *wire.Conn             // connection to the daemon; nil without one
	dials map[uint64]chan dialed // a nil channel marks an abandoned dial
	next  uint64
}

// NewServer serves h on the listening control socket.
func NewServer(l *net.UnixListener, h Handler) *Server {
	return &Server{l: l, h: h, dials: map[uint64]chan dialed{}}
}

// Serve answers daemons, one after the other. It returns when a daemon disconnects while the VM is
// still a shell, plain or prepared.
func (s *Server) Serve() error {
	for {
		c, err := s.l.AcceptUnix()
		if err != nil {
			return fmt.Errorf("accept control connection: %w", err)
		}
		if s.serveDaemon(c); s.h.Status().State.Idle() {
			return nil
		}
	}
}

func (s *Server) serveDaemon(c *net.UnixConn) {
	defer c.Close()
	cn, err := wire.NewConn(c)
	if err != nil {
		return
	}
	s.setConn(cn)
	defer s.setConn(nil)
	s.serveConn(cn)
}

// request is a queued message.
type request struct {
	wire.Message
	files []*os.File
}

// maxRequests is the number of queued requests while one is served. A daemon sends few requests to
// one VM concurrently.
const maxRequests = 16

var errRequests = errors.New("more than 16 requests wait") // maxRequests

// serveConn serves requests in order, until the connection ends. One goroutine does all work until
// a potentially long request comes: a fork waits for the short ones, and passing a request to
// another goroutine wakes a second thread.
func (s *Server) serveConn(c *wire.Conn) {
	if s.h.Status().State == vmm.StateShell {
		if s.sendReady(c) != nil {
			return
		}
	}
	buf := make([]byte, wire.MaxMessage)
	for {
		m, files, err := c.Receive(buf, wire.MaxFiles)
		if err != nil {
			return
		}
		r := request{m, files}
		switch {
		case s.urgent(r):
		case !quick(m.Op):
			s.serveLong(c, buf, r)
			return
		case s.answer(c, r) != nil:
			return
		}
	}
}

// sendReady reports the process as ready for a guest, with its confinement.
func (s *Server) sendReady(c *wire.Conn) error {
	body, err := json.Marshal(wire.ClipReady(wire.Ready{Confinement: s.Confinement}))
	if err != nil {
		return err
	}
	return s.send(c, wire.Message{Event: wire.EventReady, Body: body})
}

// quick reports whether a request is short: requests to start a VM, and queries.
func quick(op string) bool {
	switch op {
	case wire.OpBoot, wire.OpRestore, wire.OpResume, wire.OpPopulate, wire.OpPopulateShell, wire.OpStatus, wire.OpNet,
		wire.OpNetOpen, wire.OpPlug:
		return true
	}
	return false
}

// serveLong serves requests while another goroutine reads: answers to the guest's dials must not
// wait for a capture's end.
func (s *Server) serveLong(c *wire.Conn, buf []byte, first request) {
	requests := make(chan request, maxRequests)
	requests <- first
	go func() {
		defer close(requests)
		s.readRequests(c, buf, requests)
	}()
	defer func() { // the first to return ends the other
		c.Close()
		for r := range requests {
			unixfd.CloseAll(r.files)
		}
	}()
	for r := range requests {
		if s.answer(c, r) != nil {
			return
		}
	}
}

// readRequests reads until the connection ends.
func (s *Server) readRequests(c *wire.Conn, buf []byte, requests chan<- request) {
	for {
		m, files, err := c.Receive(buf, wire.MaxFiles)
		if err != nil {
			return
		}
		r := request{m, files}
		if s.urgent(r) {
			continue
		}
		select {
		case requests <- r:
		default:
			unixfd.CloseAll(files)
			if s.send(c, wire.Message{ID: m.ID, Error: wire.EncodeError(errRequests)}) != nil {
				return
			}
		}
	}
}

// urgent serves r if it need not wait for earlier requests, and reports whether it did.
func (s *Server) urgent(r request) bool {
	if r.Op != wire.OpDialed {
		return false
	}
	s.finishDial(r.Message, r.files)
	return true
}

// answer serves one request.
func (s *Server) answer(c *wire.Conn, r request) error {
	answer := wire.Message{ID: r.ID}
	result, err := s.serve(r.Message, r.files)
	if err == nil && result != nil {
		answer.Body, err = json.Marshal(result)
	}
	if err != nil {
		answer.Body, answer.Error = nil, wire.EncodeError(err)
	}
	return s.send(c, answer)
}

// send waits for the daemon to read, up to the connection's limit.
func (s *Server) send(c *wire.Conn, m wire.Message) error { return c.Send(context.Background(), m) }

// SendExit reports the VM's end to the daemon, if one is connected.
func (s *Server) SendExit(e vmm.Exit) {
	e.Reason = wire.ClipText(e.Reason)
	s.sendEvent(wire.EventExit, e)
}

// SendHealth sends the VM's health to the daemon, if one is connected. The next daemon requests the
// status.
func (s *Server) SendHealth(h vmm.Health) { s.sendEvent(wire.EventHealth, wire.ClipHealth(h)) }

// sendEvent ignores errors: if the daemon has gone, the next one learns the state from the status.
func (s *Server) sendEvent(name string, body any) {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c == nil {
		return
	}
	if b, err := json.Marshal(body); err == nil {
		_ = s.send(c, wire.Message{Event: name, Body: b})
	}
}
