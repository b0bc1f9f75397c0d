package client

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail/jailtest"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/sys/uffd"
	"github.com/forkd/forkd/internal/testing/statictest"
	"github.com/forkd/forkd/internal/vm/spawner/server"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
	vmserver "github.com/forkd/forkd/internal/vm/vmctl/server"
	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	vmwire "github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// Arguments 0 of the tests as a user with mapped users, and as root of a container.
const (
	asMapped    = "as-mapped"
	asContained = "as-contained"
)

// TestMain is also forkd-spawn, and the VMM that it starts. The latter tries what a guest that has
// taken over its VMM would try.
func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Args[0] == asMapped:
		err = becomeMapped()
	case os.Args[0] == asContained:
		err = becomeContained()
	case os.Args[0] == vmwire.Program:
		err = inmate()
	case os.Args[0] == wire.Name && os.Args[1] == wire.ArgWait:
		err = server.Wait()
	case os.Args[0] == wire.Name:
		var conn *wire.Conn
		if conn, err = wire.NewConn(os.NewFile(wire.FDDaemon, "daemon")); err == nil {
			err = server.Serve(conn)
		}
	default:
		statictest.Main()
		goleak.VerifyTestMain(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[0]+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// order is an instruction to the inmate.
type order struct {
	World jailtest.World
	Only  []string // attempts' names; if empty, all
	// Filter is installed first, like a VMM's: filterVM, filterVCPU, or empty.
	Filter string
	Step   string // of package failpoint, at which to stop; may be empty
	Exit   int    // status to end with; 0: stay
}

// The filters of an order.
const (
	filterVM   = "vm"   // for all threads
	filterVCPU = "vcpu" // and the second, for the thread that tries
)

// answers are the results of the inmate's attempts, by name.
type answers map[string]string

// wellBehaved is the number of vCPUs of an inmate that speaks a VMM's protocol.
const wellBehaved = 2

// inmate begins like a VMM, then serves: one line of JSON per line.
func inmate() error {
	start, err := vmwire.ParseArgs(os.Args)
	if err != nil {
		return err
	}
	f := os.NewFile(vmwire.FDControl, "control")
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	if start.Shape.VCPUs == wellBehaved {
		return vmserver.NewServer(l.(*net.UnixListener), vmctltest.New(vmm.StateShell)).Serve()
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	early := answers{}
	pagemap := 0
	if start.Proc {
		early["the host's /proc by its own"] = jailtest.Answer(openat(vmwire.FDProc, "../1/status"))
		early["the host's root by its own /proc"] = jailtest.Answer(openat(vmwire.FDProc, "../../etc/passwd"))
		if pagemap, err = unix.Openat(vmwire.FDProc, "pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("pagemap: %w", err)
		}
		unix.Close(vmwire.FDProc)
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		if o.Exit != 0 {
			os.Exit(o.Exit)
		}
		if o.Step != "" {
			failpoint.Here(failpoint.Step(o.Step))
		}
		all, err := tryFiltered(o)
		if err != nil {
			return err
		}
		for name, how := range early {
			all[name] = how
		}
		var word [8]byte
		_, err = unix.Pread(pagemap, word[:], 0)
		all["pagemap"] = jailtest.Answer(err)
		if start.Userfaultfd && len(o.Only) == 0 {
			u, err := uffd.OpenAsyncWP(os.NewFile(vmwire.FDUserfaultfd, "userfaultfd"))
			if all["/dev/userfaultfd"] = jailtest.Answer(err); err == nil {
				u.Close()
			}
		}
		b, err := json.Marshal(all)
		if err != nil {
			return err
		}
		if _, err := c.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func openat(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// tryFiltered is tryAll under the filters of the order.
func tryFiltered(o order) (all answers, err error) {
	if o.Filter == "" {
		return tryAll(o), nil
	}
	if err := seccomp.VM.Install(seccomp.On, seccomp.AllThreads); err != nil || o.Filter == filterVM {
		return tryAll(o), err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and ends with its thread
		if err = seccomp.VCPU.Install(seccomp.On, seccomp.ThisThread); err == nil {
			all = tryAll(o)
		}
	}()
	<-done
	return all, err
}

func tryAll(o order) answers {
	all := answers{}
	for _, a := range jailtest.Attempts() {
		if len(o.Only) == 0 || slices.Contains(o.Only, a.Name) {
			all[a.Name] = a.Try(o.World)
		}
	}
	return all
}
