package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// dialed is the daemon's answer to a dial.
type dialed struct {
	file *os.File
	err  error
}

// setConn changes the connected daemon. Dials without an answer from the previous daemon are
// refused.
func (s *Server) setConn(c *wire.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = c
	for id, ch := range s.dials {
		if ch != nil {
			ch <- dialed{err: vmm.ErrGone}
		}
		delete(s.dials, id)
	}
}

// DialHost asks the daemon for a connection to a host port. It refuses the dial without a daemon,
// or while wire.MaxDials dials wait for an answer.
func (s *Server) DialHost(ctx context.Context, port uint32) (net.Conn, error) {
	body, err := json.Marshal(wire.Dial{Port: port})
	if err != nil {
		return nil, err
	}
	c, id, ch, err := s.beginDial()
	if err != nil {
		return nil, err
	}
	if err := c.Send(ctx, wire.Message{ID: id, Event: wire.EventDial, Body: body}); err != nil {
		s.mu.Lock()
		delete(s.dials, id) // the request was not sent
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

// ErrDials is returned if the guest has more dials waiting than the daemon accepts.
var ErrDials = errors.New("too many dials wait for an answer")

func (s *Server) beginDial() (c *wire.Conn, id uint64, ch chan dialed, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.conn == nil:
		return nil, 0, nil, vmm.ErrGone
	case len(s.dials) >= wire.MaxDials: // the daemon ends a VMM for sending more
		return nil, 0, nil, ErrDials
	}
	s.next++
	ch = make(chan dialed, 1)
	s.dials[s.next] = ch
	return s.conn, s.next, ch, nil
}

// abandon closes a file delivered meanwhile. An unanswered dial stays counted, because the daemon
// still has it.
func (s *Server) abandon(id uint64, ch chan dialed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dials[id] != nil {
		s.dials[id] = nil
	}
	select {
	case d := <-ch:
		if d.file != nil {
			d.file.Close()
		}
	default:
	}
}

func (s *Server) finishDial(m wire.Message, files []*os.File) {
	s.mu.Lock()
	defer s.mu.Unlock() // abandon must find either the dial or its answer
	ch := s.dials[m.ID]
	delete(s.dials, m.ID)
	switch {
	case ch == nil:
		unixfd.CloseAll(files)
	case m.Error != nil:
		unixfd.CloseAll(files)
		ch <- dialed{err: fmt.Errorf("the host refused the connection: %w", m.Error.Err())}
	case len(files) != 1:
		unixfd.CloseAll(files)
		ch <- dialed{err: fmt.Errorf("the host refused the connection: %w", wire.ErrFiles)}
	default:
		ch <- dialed{file: files[0]}
	}
}
