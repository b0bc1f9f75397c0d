package server

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/jail"
	"github.com/forkd/forkd/internal/spawner/wire"
)

// probe tells which parts of a jail this host can do. It does them, in processes that end.
func (s *Server) probe(m wire.Message) {
	answer := wire.Message{Kind: wire.Probed, ID: m.ID}
	fail := func(p jail.Part, err error) {
		if err != nil {
			answer.Errnos[p] = uint8(min(errnoOf(err), 255))
		}
	}
	can := jail.All
	fail(jail.Network, s.forks.netErr)
	// One by one what has to be asked for at the start: together they fail together.
	base := jail.Set(0)
	if !s.users {
		err := s.tryNone(base.With(jail.User))
		fail(jail.User, err)
		if err == nil {
			base = base.With(jail.User)
		}
	}
	can.Each(func(p jail.Part) {
		if base.With(p).CloneFlags() != base.CloneFlags() {
			fail(p, s.tryNone(base.With(p)))
		}
	})
	for p, errno := range answer.Errnos {
		if errno != 0 {
			can = can.Without(jail.Part(p))
		}
	}
	errnos, err := s.tryAll(can)
	can.Each(func(p jail.Part) {
		fail(p, err)
		answer.Errnos[p] |= errnos[p]
	})
	s.conn.Send(answer)
}

// tryNone starts a process with the namespaces of the set.
func (s *Server) tryNone(set jail.Set) error {
	c, err := s.fork([]string{argNone}, s.attributes(set), func(report uintptr) []uintptr {
		return []uintptr{none, none, none, report}
	})
	if err != nil {
		return err
	}
	defer c.pidfd.Close()
	defer c.report.Close()
	_, err = io.Copy(io.Discard, c.report)
	if status := unix.WaitStatus(<-c.ended); err == nil && !(status.Exited() && status.ExitStatus() == 0) {
		err = unix.EPERM
	}
	return err
}

// tryAll starts a process that applies all parts of the set.
func (s *Server) tryAll(set jail.Set) (failed [jail.Parts]uint8, err error) {
	uid := uint32(0)
	if s.users && set.Has(jail.User) {
		if uid, err = jail.PickUser(s.next.Add(1) - 1); err != nil {
			return failed, unix.EAGAIN
		}
	}
	program, err := unix.Open(self, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed, err
	}
	defer unix.Close(program)
	args := []string{argTry, strconv.FormatUint(uint64(set), 10), strconv.FormatUint(uint64(uid), 10)}
	c, err := s.fork(args, s.attributes(set), func(report uintptr) []uintptr {
		fds := make([]uintptr, fdReport+1)
		for at := range fds {
			fds[at] = none
		}
		fds[2], fds[fdProgram], fds[fdReport] = os.Stderr.Fd(), uintptr(program), report
		return fds
	})
	if err != nil {
		return failed, err
	}
	defer c.pidfd.Close()
	defer c.report.Close()
	if _, err := io.ReadFull(c.report, failed[:]); err != nil {
		return failed, unix.EIO
	}
	<-c.ended
	return failed, nil
}
