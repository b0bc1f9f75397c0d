package live

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// The role "serve" loads Debian's drivers and executes the host's commands, one line per command,
// on its own port. Each theme's file adds its commands to guestCommands and its services to
// guestServices.

const portCommands = 1000

// guestCommands answer the host's commands with a line, or an error.
var guestCommands = map[string]func(args []string) (string, error){
	"dmesg": cmdDmesg,
}

// guestServices maps ports of the guest to the handlers of their connections.
var guestServices = map[uint32]func(net.Conn){
	portCommands: serveCommands,
}

func guestServe() {
	if err := loadModules(); err != nil {
		fmt.Println("guest: load modules:", err)
		return
	}
	for port, serve := range guestServices {
		l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, port, nil) // any: a clone has another address
		if err != nil {
			fmt.Println("guest: listen:", err)
			return
		}
		go acceptLoop(l, serve)
	}
	fmt.Println("guest: serving")
	select {}
}

// acceptLoop survives a transport reset, which can abort a pending accept.
func acceptLoop(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Println("guest: accept:", err)
			time.Sleep(time.Millisecond)
			continue
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

func loadModules() error {
	const dir = "/lib/modules/forkd"
	order, err := os.ReadFile(filepath.Join(dir, "order"))
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func serveCommands(c net.Conn) {
	for in := bufio.NewScanner(c); in.Scan(); {
		f := strings.Fields(in.Text())
		cmd := guestCommands[f[0]]
		if cmd == nil {
			fmt.Fprintln(c, "error unknown command")
			continue
		}
		answer, err := cmd(f[1:])
		if err != nil {
			fmt.Fprintf(c, "error %v\n", err)
		} else {
			fmt.Fprintf(c, "ok %s\n", answer)
		}
	}
}

// cmdDmesg counts occurrences of the words in the kernel's log.
func cmdDmesg(args []string) (string, error) {
	buf := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(bytes.Count(buf[:n], []byte(strings.Join(args, " ")))), nil
}

// serveVM is a machine with a guest in the role "serve".
type serveVM struct {
	*guestVM
	vsockPath string
}

// bootServe boots the role with disks, which the machine owns, and waits until it serves.
func bootServe(t *testing.T, s vmspec.Shape, dial hostDial, disks ...vmm.Disk) *serveVM {
	t.Helper()
	v := &serveVM{guestVM: newShell(t, s), vsockPath: filepath.Join(t.TempDir(), "vsock")}
	kernel, err := os.Open(kvmtest.Fixture(t, "vmlinux"))
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	modules, err := os.ReadFile(kvmtest.Fixture(t, "modules.cpio"))
	if err != nil {
		t.Fatal(err)
	}
	initrd := append(pad4(modules), testInitrd(t)...) // the kernel unpacks one after the other
	v.devices.host = Host{Vsock: listenUnix(t, v.vsockPath), Dial: dial}
	if err := v.Boot(vmm.BootConfig{
		Kernel: kernel, Initrd: memoryFile(t, initrd), Cmdline: testCmdline + "serve", CID: 3, Disks: disks,
	}); err != nil {
		t.Fatal(err)
	}
	v.waitFor("guest: serving")
	return v
}

func pad4(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func listenUnix(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// restoreServe loads a saved machine, with its own disks, and runs it as CID cid.
func (s saved) restoreServe(t *testing.T, like *serveVM, cid uint32, genID [16]byte, disks ...vmm.Disk) *serveVM {
	t.Helper()
	v := &serveVM{guestVM: newShell(t, like.shape), vsockPath: filepath.Join(t.TempDir(), "vsock")}
	v.devices.host = Host{Vsock: listenUnix(t, v.vsockPath)}
	c := s.blueprint(t, v.Machine, cid, disks...)
	c.GenID = genID
	if _, err := v.Restore(c); err != nil {
		t.Fatal(err)
	}
	return v
}

// dialGuest connects to a port of the guest.
func (v *serveVM) dialGuest(t *testing.T, port uint32) *net.UnixConn {
	t.Helper()
	c, err := v.tryDial(port)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (v *serveVM) tryDial(port uint32) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bootLimit)
	defer cancel()
	c, err := client.DialVsock(ctx, v.vsockPath, port)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(bootLimit))
	return c.(*net.UnixConn), nil
}

// ask makes the guest execute a command. An error of the guest fails the test.
func (v *serveVM) ask(t *testing.T, format string, args ...any) string {
	t.Helper()
	answer, err := v.try(format, args...)
	if err != nil {
		t.Fatalf("guest: %s: %v", fmt.Sprintf(format, args...), err)
	}
	return answer
}

// try makes the guest execute a command.
func (v *serveVM) try(format string, args ...any) (string, error) {
	c, err := v.tryDial(portCommands)
	if err != nil {
		return "", err
	}
	defer c.Close()
	fmt.Fprintf(c, format+"\n", args...)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if kind != "ok" {
		return "", errors.New(rest)
	}
	return rest, nil
}

// eventually waits until the guest gives the answer.
func (v *serveVM) eventually(t *testing.T, want func(string) bool, format string, args ...any) string {
	t.Helper()
	for deadline := time.Now().Add(bootLimit); ; time.Sleep(20 * time.Millisecond) {
		answer := v.ask(t, format, args...)
		if want(answer) {
			return answer
		}
		if time.Now().After(deadline) {
			t.Fatalf("guest: %s: still %q after %v", fmt.Sprintf(format, args...), answer, bootLimit)
		}
	}
}

// readAll reads to the end.
func readAll(t *testing.T, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
