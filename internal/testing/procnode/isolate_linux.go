package procnode

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isolated is the variable of the process inside the namespaces. Its value says whether users can be changed.
const isolated = "FORKD_TEST_PROCNODE"

// network has the addresses of pods and services, all on the loopback device.
const network = "10.0.0.1/8"

// Isolate runs the calling test, which must be a top-level one, again in namespaces of its own: mounts, network and
// processes. There it returns true. In the first process it returns false after the end of the second one.
func Isolate(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolated) != "" {
		if err := enter(); err != nil {
			t.Fatalf("the namespaces of the test: %v", err)
		}
		return true
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.count=1", "-test.v"}
	if at, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+time.Until(at).String())
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
	users := "all"
	if uid := os.Geteuid(); uid != 0 {
		users = "one"
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	cmd.Env = append(os.Environ(), isolated+"="+users)
	if err := cmd.Run(); err != nil {
		t.Errorf("the test in its namespaces: %v", err)
	}
	return false
}

// enter prepares the namespaces of this process.
func enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("the loopback device: %w", err)
	}
	address, err := netlink.ParseAddr(network)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(lo, address); err != nil {
		return fmt.Errorf("the address %s: %w", network, err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	// The API server wants a default route. No packet takes it.
	_, all, err := net.ParseCIDR("0.0.0.0/0")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Scope: netlink.SCOPE_LINK})
}
