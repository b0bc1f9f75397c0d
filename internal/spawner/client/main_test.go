package client

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/spawner/server"
	"github.com/forkd/forkd/internal/spawner/wire"
	"github.com/forkd/forkd/internal/uffd"
	vmserver "github.com/forkd/forkd/internal/vmctl/server"
	"github.com/forkd/forkd/internal/vmctl/vmctltest"
	vmwire "github.com/forkd/forkd/internal/vmctl/wire"
	"github.com/forkd/forkd/internal/vmm"
)

// Arguments 0 of the tests as a user who has users, and as root of a container.
const (
	asMapped    = "as-mapped"
	asContained = "as-contained"
)

// TestMain is also forkd-spawn, and the VMM that it starts: the latter does what a guest that
// has taken its VMM over would try.
func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Args[0] == asMapped:
		err = becomeMapped()
	case os.Args[0] == asContained:
		err = becomeContained()
	case os.Args[0] == vmwire.Program:
		err = inmate()
	case os.Args[0] == wire.Name && server.IsInit(os.Args):
		err = server.Init(os.Args)
	case os.Args[0] == wire.Name && os.Args[1] == wire.ArgWait:
		err = server.Wait()
	case os.Args[0] == wire.Name:
		var conn *wire.Conn
		if conn, err = wire.NewConn(os.NewFile(wire.FDDaemon, "daemon")); err == nil {
			err = server.Serve(conn)
		}
	default:
		goleak.VerifyTestMain(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[0]+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// outside is what there is to reach for, told by the test.
type outside struct {
	PID      int    // of a process of the host
	Abstract string // name of an abstract socket
	Socket   string // path of a socket
	TCP      string // host and port
	Exit     int    // status to end with; 0: stay
}

// attempts are what the inmate tries; nil: it could.
type attempts map[string]string

// wellBehaved is the number of vCPUs of an inmate that speaks the protocol of a VMM.
const wellBehaved = 2

// inmate begins as a VMM does, then serves: a line of JSON for a line.
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
	var early attempts
	pagemap := 0
	if start.Proc {
		early = attempts{"the host's /proc by its own": tried(openat(vmwire.FDProc, "../1/status")),
			"the host's root by its own /proc": tried(openat(vmwire.FDProc, "../../etc/passwd"))}
		if pagemap, err = unix.Openat(vmwire.FDProc, "pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("pagemap: %w", err)
		}
		unix.Close(vmwire.FDProc)
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		var o outside
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		if o.Exit != 0 {
			os.Exit(o.Exit)
		}
		all := tryAll(o)
		for name, how := range early {
			all[name] = how
		}
		var word [8]byte
		_, err := unix.Pread(pagemap, word[:], 0)
		all["+pagemap"] = tried(err)
		if start.Userfaultfd {
			u, err := uffd.OpenAsyncWP(os.NewFile(vmwire.FDUserfaultfd, "userfaultfd"))
			if all["+userfaultfd"] = tried(err); err == nil {
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

func tried(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func openat(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func open(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func connect(network, address string) error {
	c, err := net.Dial(network, address)
	if err == nil {
		c.Close()
	}
	return err
}

func tryAll(o outside) attempts {
	all := attempts{}
	for name, err := range map[string]error{
		"a file of the host":      open("/etc/passwd", unix.O_RDONLY),
		"the root":                open("/", unix.O_RDONLY|unix.O_DIRECTORY),
		"above the root":          open("../../../../etc/passwd", unix.O_RDONLY),
		"/proc":                   open("/proc/self/status", unix.O_RDONLY),
		"its console by /proc":    open(fmt.Sprintf("/proc/self/fd/%d", vmwire.FDConsole), unix.O_RDWR),
		"a device":                open("/dev/null", unix.O_RDWR),
		"a new file":              open("/new", unix.O_RDWR|unix.O_CREAT),
		"a file without a name":   open("/", unix.O_RDWR|unix.O_TMPFILE),
		"a device node":           unix.Mknod("/kvm", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 232))),
		"a directory":             unix.Mkdir("/new", 0o700),
		"a program of the host":   unix.Exec("/bin/sh", []string{"sh", "-c", "true"}, nil),
		"tracing a process":       unix.PtraceAttach(o.PID),
		"a process's memory":      readMemory(o.PID),
		"a handle of a process":   handleOf(o.PID),
		"a signal to a process":   unix.Kill(o.PID, 0),
		"signals to all":          unix.Kill(-1, 0),
		"an abstract socket":      connect("unix", "@"+o.Abstract),
		"a socket by its path":    connect("unix", o.Socket),
		"TCP to the host":         connect("tcp", o.TCP),
		"a mount":                 unix.Mount("none", "/", "tmpfs", 0, ""),
		"chroot":                  unix.Chroot("/"),
		"another user":            syscall.Setuid(1),
		"another host name":       unix.Sethostname([]byte("taken")),
		"a namespace":             unix.Unshare(unix.CLONE_NEWNET),
		"more descriptors":        unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}, nil),
		"locked memory":           lock(),
		"a raised priority":       unix.Setpriority(unix.PRIO_PROCESS, 0, -20),
		"KVM by another name":     open("/dev/kvm", unix.O_RDWR),
		"a raw socket":            rawSocket(),
		"a capability by an exec": unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0),
	} {
		all[name] = tried(err)
	}
	return all
}

func readMemory(pid int) error {
	var b [1]byte
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
	return err
}

func handleOf(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func lock() error {
	p, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(p)
	return unix.Mlock(p)
}

func rawSocket() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func hasInterpreter() bool {
	b, err := os.ReadFile("/proc/self/maps")
	return err == nil && strings.Contains(string(b), "/ld-")
}
