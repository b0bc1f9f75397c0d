package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/testing/statictest"
	"github.com/forkd/forkd/internal/vm/vmctl/server"
	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// limit is the time limit for fast operations. It is long to suit loaded machines.
const limit = vmctltest.Limit

// TestMain is also the VMM process of the tests: Spawn starts this binary under its name, with a
// shape that selects the behaviour.
func TestMain(m *testing.M) {
	if os.Args[0] == wire.Program {
		os.Exit(fakeMain())
	}
	statictest.Main() // the filters do not allow a C library's threads
	goleak.VerifyTestMain(m)
}

// Behaviours of a fake VMM process, encoded as the number of its vCPUs.
const (
	behaveWell = 1 + iota
	exitAtOnce
	neverReady
	talkGarbage
	newerVersion
	oldestVersion
	hangInPause
	beHostile // encoded in the shape's memory
)

func fakeMain() int {
	start, err := wire.ParseArgs(os.Args)
	if err != nil {
		return 2
	}
	shape := start.Shape
	l, err := net.FileListener(os.NewFile(wire.FDControl, "control"))
	if err != nil {
		return 2
	}
	control := l.(*net.UnixListener)
	switch shape.VCPUs {
	case exitAtOnce:
		fmt.Fprintln(os.Stderr, "fake: nothing works here")
		return 3
	case neverReady:
		time.Sleep(time.Hour) // not select{}: without cgo the runtime would call that a deadlock
	case beHostile:
		return hostileMain(control, shape.MemoryMiB-64)
	case talkGarbage:
		c, err := l.Accept()
		if err != nil {
			return 2
		}
		c.Write([]byte("{this is not JSON"))
		time.Sleep(time.Hour) // not select{}: without cgo the runtime would call that a deadlock
	case newerVersion:
		return versionMain(control, wire.Version+1)
	case oldestVersion:
		return versionMain(control, wire.Oldest)
	}
	vm := vmctltest.New(vmm.StateShell)
	vm.Shape, vm.HangInPause = shape, shape.VCPUs == hangInPause
	s := server.NewServer(control, disobedient{vm})
	if vm.Confined = start.Seccomp != seccomp.Off; vm.Confined {
		if err := seccomp.VM.Install(start.Seccomp, seccomp.AllThreads); err != nil {
			return 2
		}
		s.Confinement = seccomp.Confinement{Confined: start.Seccomp == seccomp.On, Why: strings.Repeat("why not? ", 1000)}
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	select {
	case e := <-vm.Exit:
		s.SendExit(e)
	case <-served:
	}
	return 0
}

// versionMain is a VMM that accepts everything, and reports a version of the protocol.
func versionMain(l *net.UnixListener, version int) int {
	for first := true; ; first = false {
		c, err := l.AcceptUnix()
		if err != nil {
			return 2
		}
		conn, err := wire.NewConn(c)
		if err != nil {
			return 2
		}
		body, err := json.Marshal(wire.Status{Version: version, Status: vmm.Status{State: vmm.StateRunning}})
		if err != nil {
			return 2
		}
		if first {
			err = conn.Send(context.Background(), wire.Message{Event: wire.EventReady})
		}
		for buf := make([]byte, wire.MaxMessage); err == nil; {
			var m wire.Message
			var files []*os.File
			if m, files, err = conn.Receive(buf, wire.MaxFiles); err == nil {
				unixfd.CloseAll(files)
				err = conn.Send(context.Background(), wire.Message{ID: m.ID, Body: body})
			}
		}
		conn.Close()
	}
}

// disobedient makes a call that no VMM makes when its network is opened.
type disobedient struct{ *vmctltest.VM }

func (d disobedient) OpenNet(wire *os.File) error {
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil {
		unix.Close(fd)
	}
	return d.VM.OpenNet(wire)
}

// spawn starts a fake VMM process that has ended when the test ends.
func spawn(t *testing.T, behaviour int, dial HostDialer) (*Process, error) {
	t.Helper()
	return spawnShape(t, vmspec.Shape{MemoryMiB: 64, VCPUs: behaviour}, dial)
}

func spawnShape(t *testing.T, shape vmspec.Shape, dial HostDialer) (*Process, error) {
	t.Helper()
	return spawnAs(t, SpawnConfig{Shape: shape, Dial: dial})
}

// spawnAs starts one with that configuration, completed by defaults.
func spawnAs(t *testing.T, c SpawnConfig) (*Process, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kvm := vmctltest.Open(t, os.DevNull)
	dir, err := os.MkdirTemp("", "vmm") // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c.Binary, c.Dir, c.KVM, c.Log = exe, dir, kvm, log
	p, err := Spawn(context.Background(), c)
	if err == nil {
		t.Cleanup(func() {
			p.Kill()
			waitDone(t, p)
		})
	}
	return p, err
}

func mustSpawn(t *testing.T, behaviour int, dial HostDialer) *Process {
	t.Helper()
	p, err := spawn(t, behaviour, dial)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func waitDone(t *testing.T, p *Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(limit):
		t.Fatal("the VMM process does not end")
	}
}

var errTest = errors.New("the daemon does not want it")
