package server

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/jail/stage"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
	vmwire "github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// leaveNetwork moves all threads of this process, and so all processes it starts, to one empty
// network namespace. If it fails, the threads may be in different namespaces, and VMMs may have a
// network.
func leaveNetwork() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	empty, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(empty)
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_SETNS, uintptr(empty), unix.CLONE_NEWNET, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// child is a started process.
type child struct {
	pid    int
	pidfd  *os.File
	report *os.File    // ends when it has executed its program, or has ended
	ended  chan uint32 // receives its status
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
	if m.Want.Has(jail.Network) && s.netErr != nil {
		return nil, &jail.Error{Part: jail.Network, Err: errnoOf(s.netErr)}
	}
	script, err := become(m, uid)
	if err != nil {
		return nil, err
	}
	attr := s.attributes(m.Want)
	if cgroup, ok := place[wire.Cgroup]; ok {
		attr.UseCgroupFD, attr.CgroupFD = true, int(cgroup)
	}
	c, err := s.fork(script, attr, func(fds []uintptr) {
		for bit, at := range places {
			if fd, ok := place[bit]; ok {
				fds[at] = fd
			}
		}
		fds[0] = place[wire.Null]
	})
	runtime.KeepAlive(files)
	return c, err
}

// none marks a descriptor to close in a child.
const none = ^uintptr(0)

// Descriptors of a process before it becomes a VMM, besides the VMM's own.
const (
	fdProgram = vmwire.FDUserfaultfd + 1
	fdReport  = fdProgram + 1
	fdStage   = fdReport + 1 // its executable until then
)

// places maps descriptors to their numbers in a VMM.
var places = map[wire.Files]int{
	wire.Null: 1, wire.Log: 2, wire.KVM: vmwire.FDKVM, wire.Control: vmwire.FDControl, wire.Vsock: vmwire.FDVsock,
	wire.Console: vmwire.FDConsole, wire.Failpoints: vmwire.FDFailpoints, wire.Userfaultfd: vmwire.FDUserfaultfd,
	wire.Program: fdProgram,
}

// attributes returns the settings a process can only get at its start.
func (s *Server) attributes(want jail.Set) *syscall.SysProcAttr {
	// Its own session: a signal to the daemon's terminal must not end the VMs.
	a := &syscall.SysProcAttr{Setsid: true, Cloneflags: want.CloneFlags()}
	if !s.users && want.Has(jail.User) {
		a.Cloneflags |= unix.CLONE_NEWUSER
		own := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
		a.UidMappings, a.GidMappings = own, own
	}
	return a
}

// stagePath is the path of fdStage, in its process.
var stagePath = fmt.Sprintf("/proc/self/fd/%d", fdStage)

// fork starts a process to make the script's calls. Descriptors not placed by fds are closed in it.
func (s *Server) fork(script *stage.Script, attr *syscall.SysProcAttr, fds func([]uintptr)) (*child, error) {
	executable, err := script.File()
	if err != nil {
		return nil, err
	}
	defer executable.Close()
	report, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer end.Close()
	list := slices.Repeat([]uintptr{none}, fdStage+1)
	fds(list)
	list[fdReport], list[fdStage] = end.Fd(), executable.Fd()
	var pidfd int
	attr.PidFD = &pidfd
	c := &child{report: report, ended: make(chan uint32, 1)}
	s.mu.Lock()
	pid, err := syscall.ForkExec(stagePath, []string{wire.Name, argInit}, &syscall.ProcAttr{
		Dir: "/", Files: list, Sys: attr,
	})
	if err == nil {
		s.children[pid] = c.ended
	}
	s.mu.Unlock()
	if err != nil {
		report.Close()
		return nil, fmt.Errorf("start a process: %w", err)
	}
	c.pid, c.pidfd = pid, os.NewFile(uintptr(pidfd), "pidfd")
	return c, nil
}

// executed waits until the process has executed its program. A *jail.Error is the reason for a
// failure. If the report ends without data, it returns nil: the process has executed its program,
// or has ended.
func (c *child) executed() error {
	defer c.report.Close()
	failed, err := c.failures()
	if errors.Is(err, io.EOF) {
		return nil
	}
	c.pidfd.Close()
	if err != nil {
		return err
	}
	if first := failed.First(); first != nil {
		return first
	}
	return errors.New("it says that it failed, and not in what")
}

// failures returns the reported failures, or io.EOF if there is no report.
func (c *child) failures() (failed jail.Failures, err error) {
	_, err = io.ReadFull(c.report, failed[:])
	return failed, err
}

func randomUser() (uint32, error) {
	var b [4]byte
	_, err := rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:]) % jail.Users, err
}
