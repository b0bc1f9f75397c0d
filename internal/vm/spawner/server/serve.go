package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
)

// most is the maximum number of concurrent requests. More wait in the socket.
const most = 64

// shellNice is the priority of control work; a VMM drops it when it gets a guest.
const shellNice = -10

// Server serves one daemon.
type Server struct {
	conn   *wire.Conn
	netErr error // why there is no empty network namespace
	users  bool  // there are uids for VMMs; otherwise each is in a user namespace
	next   atomic.Uint32

	mu       sync.Mutex // held while a process is started: its end must not precede its registration
	children map[int]chan uint32
}

// Serve serves until the daemon hangs up. VMMs keep running.
func Serve(conn *wire.Conn) error {
	// The priority of the daemon and its shells (package sched), inherited by all started
	// processes. Without the permission they are only slower while guests are busy.
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, shellNice)
	first, err := randomUser()
	if err != nil {
		return err
	}
	s := &Server{conn: conn, netErr: leaveNetwork(), users: jail.HasUsers(), children: map[int]chan uint32{}}
	s.next.Store(first)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			s.reap()
		}
	}()
	room := make(chan struct{}, most)
	for {
		m, files, err := conn.Receive()
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return nil
		}
		if err != nil {
			return err
		}
		room <- struct{}{}
		switch m.Kind {
		case wire.Spawn:
			go func() { s.spawn(m, files); <-room }()
		case wire.Probe:
			go func() { s.probe(m); <-room }()
		default:
			unixfd.CloseAll(files)
			return fmt.Errorf("%w: kind %d is no request", wire.ErrMessage, m.Kind)
		}
	}
}

// spawn starts a VMM, and answers when it has executed its program. Send errors are ignored,
// because the daemon is gone then.
func (s *Server) spawn(m wire.Message, files []*os.File) {
	failpoint.Here(failpoint.SpawnAsked)
	c, err := s.start(m, files)
	unixfd.CloseAll(files)
	if err == nil {
		failpoint.Here(failpoint.SpawnForked)
		err = c.executed()
	}
	if err != nil {
		var part *jail.Error
		if !errors.As(err, &part) {
			part = &jail.Error{Part: jail.Parts, Err: errnoOf(err)}
		}
		s.conn.Send(wire.Message{Kind: wire.Failed, ID: m.ID, Part: part.Part, Errno: uint32(part.Err)})
		return
	}
	failpoint.Here(failpoint.SpawnExecuted)
	err = s.conn.Send(wire.Message{Kind: wire.Spawned, ID: m.ID, PID: uint32(c.pid)}, c.pidfd)
	c.pidfd.Close()
	if err == nil {
		go s.tellEnd(c)
	}
}

func (s *Server) tellEnd(c *child) {
	s.conn.Send(wire.Message{Kind: wire.Ended, PID: uint32(c.pid), Status: <-c.ended})
}

func errnoOf(err error) unix.Errno {
	errno := unix.EIO
	errors.As(err, &errno)
	return errno
}

// reap reaps all ended children.
func (s *Server) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ok := s.children[pid]; ok {
			ended <- uint32(status) // the channel has room for one
			delete(s.children, pid)
		}
	}
}
