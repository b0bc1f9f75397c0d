//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/selfbox"
	"github.com/forkd/forkd/internal/sys/hostproc"
	spawner "github.com/forkd/forkd/internal/vm/spawner/client"
	"github.com/forkd/forkd/internal/vm/spawner/server"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
)

// asConfined is argument 0 of this test binary when it acts as a confined daemon.
const asConfined = "forkd-confined"

// other runs the other roles of this test binary.
func other() (is bool, err error) {
	switch {
	case os.Args[0] == asConfined:
		return true, confinedDaemon()
	case os.Args[0] == wire.Name:
		conn, err := wire.NewConn(os.NewFile(wire.FDDaemon, "daemon"))
		if err == nil {
			err = server.Serve(conn)
		}
		return true, err
	}
	return false, nil
}

// confinedDaemon does a daemon's work with the remaining rights.
func confinedDaemon() error {
	vm := exec.Command("/bin/sleep", "600") // another user's
	if os.Geteuid() == 0 {
		uid, err := jail.PickUser(99)
		if err != nil {
			return err
		}
		vm.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if err := vm.Start(); err != nil {
		return err
	}
	defer vm.Process.Kill()
	before, err := spawner.Probe(context.Background(), "/proc/self/exe")
	if err != nil {
		return err
	}
	if err := confine(); err != nil {
		return err
	}
	after, err := spawner.Probe(context.Background(), "/proc/self/exe")
	if err != nil || after.Can() != before.Can() {
		return fmt.Errorf("the jail has %s, before %s: %w", after.Can(), before.Can(), err)
	}
	s, err := spawner.Open(context.Background(), spawner.Config{Binary: "/proc/self/exe", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer s.Close()
	proc := fmt.Sprintf("/proc/%d/", vm.Process.Pid)
	_, link := os.Readlink(proc + "exe")
	_, smaps := os.ReadFile(proc + "smaps")
	_, memory := hostproc.OwnMemory(vm.Process.Pid)
	if err := errors.Join(link, smaps, memory); err != nil {
		return fmt.Errorf("a VM cannot be looked at: %w", err)
	}
	if err := vm.Process.Kill(); err != nil {
		return fmt.Errorf("a VM cannot be ended: %w", err)
	}
	for what, err := range map[string]error{
		"a mount":       unix.Mount("none", "/mnt", "tmpfs", 0, ""),
		"a device node": unix.Mknod("/tmp/forkd-test-null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))),
		"a raw socket":  rawSocket(),
		"a host name":   unix.Sethostname([]byte("taken")),
		"another user":  unix.Setreuid(1, 1),
		"chroot":        unix.Chroot("/"),
	} {
		if !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%s: %v", what, err)
		}
	}
	b, err := os.ReadFile("/proc/self/status")
	fmt.Printf("%s", b)
	return err
}

func rawSocket() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// A confined daemon starts VMs in the same jail, and can still control them.
func TestAConfinedDaemon(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = asConfined
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := []string{"NoNewPrivs:\t1"}
	has, err := selfbox.Capabilities()
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, fmt.Sprintf("CapPrm:\t%016x", uint64(has&(daemonUses|spawnerUses))),
		fmt.Sprintf("CapEff:\t%016x", uint64(has&daemonUses)))
	for _, line := range want {
		if !strings.Contains(string(out), line) {
			t.Errorf("it has no %q:\n%s", line, out)
		}
	}
}
