package enginefake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/engine/op"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/store/overlay"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmctl/server"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// fake is a VMM with an HTTP server in the same process as its guest. Tests make it misbehave with
// tokens: files in RunDir/fake, each causing one fault of one VM.
type fake struct {
	tokens  string
	dir     string // run directory
	console *os.File
	kills   atomic.Int32 // processes that the guest's kernel has killed
	server  *server.Server
	ended   chan vmm.Exit

	mu    sync.Mutex
	st    vmm.Status
	agent agentv1.IdentityRequest
	mem   []byte
	size  int64
	gate  *startgate.Entrance // of the restore; may be nil
	disks []*overlay.Disk     // disks with an overlay file
	bases [][]extent.Extent   // of each of them
	owns  [][]*os.File        // of each: the earlier ones and the current one
	maps  op.ExtentImage      // of the restore

	kept []*os.File // of captures, for scribble
	wire *os.File   // to forkd-net; may be nil

	branched bool // its memory was captured from a running guest
	silent   bool
	noPort   bool // the identity port is gone
	updated  bool // its agent was replaced
}

func fakeVMM() error {
	console := os.NewFile(wire.FDConsole, "console")
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", wire.FDConsole))
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f := &fake{dir: dir, tokens: filepath.Join(dir, "..", "..", "fake"), console: console, ended: make(chan vmm.Exit, 4)}
	f.st = vmm.Status{State: vmm.StateShell}
	if err := json.Unmarshal([]byte(os.Args[1]), &f.st.Shape); err != nil {
		return err
	}
	if f.faulty("spawn") {
		return errors.New("no KVM today")
	}
	control, err := fakeListener(wire.FDControl)
	if err != nil {
		return err
	}
	vsock, err := fakeListener(wire.FDVsock)
	if err != nil {
		return err
	}
	f.server = server.NewServer(control, f)
	confined := slices.Contains(os.Args, "seccomp=on") && !f.faulty("unconfined")
	f.server.Confinement = seccomp.Confinement{Confined: confined}
	go f.serveAgent(vsock)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve() }()
	select {
	case e := <-f.ended:
		f.server.SendExit(e)
		if f.faulty("linger") {
			time.Sleep(time.Hour) // its process outlives its exit report
		}
		return nil
	case err := <-served:
		return err
	}
}

func fakeListener(fd uintptr) (*net.UnixListener, error) {
	f := os.NewFile(fd, "listener")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l.(*net.UnixListener), nil
}

// faulty consumes a token of that name if there is one.
func (f *fake) faulty(name string) bool {
	found, _ := filepath.Glob(filepath.Join(f.tokens, name+".*"))
	for _, t := range found {
		if os.Remove(t) == nil {
			return true
		}
	}
	return false
}

// Status is wrong only for a running VM, since the server calls it as well.
func (f *fake) Status() vmm.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.st.State != vmm.StateRunning {
		return f.st
	}
	switch {
	case f.faulty("status-exited"):
		f.st.State = vmm.StateExited
	case f.faulty("status-die"):
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case f.faulty("status-hang"):
		time.Sleep(time.Hour)
	}
	f.st.Guest += 7 // between any two answers
	return f.st
}

func (f *fake) set(s vmm.State, cid uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.st.State = s
	if cid != 0 {
		f.st.CID = cid
	}
}

// Plug implements server.Handler.
func (f *fake) Plug(volumes []vmm.Disk) error { return f.addDisks(volumes) }

var _ server.Handler = (*fake)(nil)

// Shape is the shape of the tests' image, the smallest possible.
var Shape = vmspec.Shape{MemoryMiB: vmspec.MinMemoryMiB, VCPUs: 1, Disks: 1, Slots: vmspec.MaxSlots}
