package server

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/jail"
	"github.com/forkd/forkd/internal/spawner/wire"
	vmwire "github.com/forkd/forkd/internal/vmctl/wire"
)

// self is this program, also where it was replaced since.
const self = "/proc/self/exe"

// forker starts processes from one thread, whose network namespace is the empty one.
type forker struct {
	jobs   chan func()
	netErr error // there is no such namespace
}

func newForker() *forker {
	f := &forker{jobs: make(chan func())}
	ready := make(chan struct{})
	go func() {
		runtime.LockOSThread() // for good
		f.netErr = unix.Unshare(unix.CLONE_NEWNET)
		close(ready)
		for job := range f.jobs {
			job()
		}
	}()
	<-ready
	return f
}

// do calls job in that thread.
func (f *forker) do(job func()) {
	done := make(chan struct{})
	f.jobs <- func() { job(); close(done) }
	<-done
}

// child is a process that was started.
type child struct {
	pid    int
	pidfd  *os.File
	report *os.File    // ends when it has its program, or is no more
	ended  chan uint32 // gets its status
}

// start starts a process that enters a jail and becomes a VMM.
func (s *Server) start(m wire.Message, files []*os.File) (*child, error) {
	place := map[wire.Files]uintptr{}
	i := 0
	for bit := wire.Program; bit <= wire.Cgroup; bit <<= 1 {
		if m.Files&bit != 0 {
			place[bit] = files[i].Fd()
			i++
		}
	}
	uid := uint32(0)
	if s.users && m.Want.Has(jail.User) {
		var err error
		if uid, err = jail.PickUser(s.next.Add(1) - 1); err != nil {
			return nil, &jail.Error{Part: jail.User, Err: unix.EAGAIN}
		}
	}
	if m.Want.Has(jail.Network) && s.forks.netErr != nil {
		return nil, &jail.Error{Part: jail.Network, Err: errnoOf(s.forks.netErr)}
	}
	b, err := m.Encode()
	if err != nil {
		return nil, err
	}
	attr := s.attributes(m.Want)
	if cgroup, ok := place[wire.Cgroup]; ok {
		attr.UseCgroupFD, attr.CgroupFD = true, int(cgroup)
	}
	args := []string{argInit, hex.EncodeToString(b[:]), strconv.FormatUint(uint64(uid), 10)}
	c, err := s.fork(args, attr, func(report uintptr) []uintptr {
		fds := make([]uintptr, fdReport+1)
		for at := range fds {
			fds[at] = none
		}
		for bit, at := range places {
			if fd, ok := place[bit]; ok {
				fds[at] = fd
			}
		}
		fds[0], fds[fdReport] = place[wire.Null], report
		return fds
	})
	runtime.KeepAlive(files)
	return c, err
}

// none is a descriptor that is closed in a child.
const none = ^uintptr(0)

// Descriptors of a process that is about to be a VMM, beside those that it is to have.
const (
	fdProgram = vmwire.FDUserfaultfd + 1
	fdReport  = fdProgram + 1
)

// places are where a VMM has its descriptors.
var places = map[wire.Files]int{
	wire.Null: 1, wire.Log: 2, wire.KVM: vmwire.FDKVM, wire.Control: vmwire.FDControl, wire.Vsock: vmwire.FDVsock,
	wire.Console: vmwire.FDConsole, wire.Failpoints: vmwire.FDFailpoints, wire.Userfaultfd: vmwire.FDUserfaultfd,
	wire.Program: fdProgram,
}

// attributes are those of a process that has what can only be given to a new one.
func (s *Server) attributes(want jail.Set) *syscall.SysProcAttr {
	// A session of its own: a signal to the daemon's terminal must not end the VMs.
	a := &syscall.SysProcAttr{Setsid: true, Cloneflags: want.CloneFlags()}
	if !s.users && want.Has(jail.User) {
		a.Cloneflags |= unix.CLONE_NEWUSER
		own := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
		a.UidMappings, a.GidMappings = own, own
	}
	return a
}

// fork starts this program with other arguments.
func (s *Server) fork(args []string, attr *syscall.SysProcAttr, fds func(report uintptr) []uintptr) (*child, error) {
	report, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer end.Close()
	var pid, pidfd int
	attr.PidFD = &pidfd
	c := &child{report: report, ended: make(chan uint32, 1)}
	s.forks.do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		pid, err = syscall.ForkExec(self, append([]string{wire.Name}, args...), &syscall.ProcAttr{
			Dir: "/", Env: initEnv, Files: fds(end.Fd()), Sys: attr,
		})
		if err == nil {
			s.children[pid] = c.ended
		}
	})
	if err != nil {
		report.Close()
		return nil, fmt.Errorf("start a process: %w", err)
	}
	c.pid, c.pidfd = pid, os.NewFile(uintptr(pidfd), "pidfd")
	return c, nil
}

// executed waits until the process has its program. A *jail.Error is why it has not; one
// that ended without a word is one that has ended.
func (c *child) executed() error {
	defer c.report.Close()
	var b [reportSize]byte
	n, err := io.ReadFull(c.report, b[:])
	if n == 0 && errors.Is(err, io.EOF) {
		return nil
	}
	c.pidfd.Close()
	if err != nil {
		return err
	}
	return decodeReport(b)
}

func randomUser() (uint32, error) {
	var b [4]byte
	_, err := rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:]) % jail.Users, err
}
