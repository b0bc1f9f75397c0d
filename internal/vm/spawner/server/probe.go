package server

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
)

// self is this program, even if its file was replaced since.
const self = "/proc/self/exe"

// probe reports which parts of a jail this host supports. It applies them in short-lived processes.
func (s *Server) probe(m wire.Message) {
	answer := wire.Message{Kind: wire.Probed, ID: m.ID}
	fail := func(p jail.Part, err error) {
		if err != nil {
			answer.Errnos[p] = uint8(min(errnoOf(err), 255))
		}
	}
	can := jail.All
	fail(jail.Network, s.netErr)
	// Test the parts requested at process start one by one: together they fail together.
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
	c, err := s.fork(jail.Nothing(), s.attributes(set), func([]uintptr) {})
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

// tryAll starts a process to apply all parts of the set.
func (s *Server) tryAll(set jail.Set) (jail.Failures, error) {
	plan := jail.Plan{Want: set, FileSize: 1 << 40, Seccomp: seccomp.On}
	var err error
	if s.users && set.Has(jail.User) {
		if plan.UID, err = jail.PickUser(s.next.Add(1) - 1); err != nil {
			return jail.Failures{}, unix.EAGAIN
		}
	}
	program, err := unix.Open(self, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return jail.Failures{}, err
	}
	defer unix.Close(program)
	script, cannot := jail.Try(plan, placesOfJail)
	c, err := s.fork(script, s.attributes(set), func(fds []uintptr) { fds[fdProgram] = uintptr(program) })
	if err != nil {
		return cannot, err
	}
	defer c.pidfd.Close()
	defer c.report.Close()
	failed, err := c.failures()
	if err != nil {
		return cannot, unix.EIO
	}
	<-c.ended
	for p, errno := range cannot {
		failed[p] |= errno
	}
	if errno := failed[jail.Parts]; errno != 0 {
		return failed, unix.Errno(errno)
	}
	return failed, nil
}
