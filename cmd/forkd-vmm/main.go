// Command forkd-vmm is the process of one virtual machine. The daemon starts
// it with its descriptors and speaks to it over the control socket (package
// vmmctl). It is a binary of its own, apart from forkd, so that a VM's process
// carries no HTTP, no protocol buffers and none of their memory.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	"github.com/forkd/forkd/internal/kvm"
	"github.com/forkd/forkd/internal/serial"
	"github.com/forkd/forkd/internal/vmm"
	"github.com/forkd/forkd/internal/vmmctl"
	"github.com/forkd/forkd/internal/vmspec"
)

// consoleMax bounds the console log, in bytes.
const consoleMax = 256 << 10

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "forkd-vmm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 && !vmmctl.Rehearsing(args) {
		return fmt.Errorf("this is the process of a virtual machine; it is started by `forkd serve`, not by hand")
	}
	var shape vmspec.Shape
	if err := json.Unmarshal([]byte(args[1]), &shape); err != nil {
		return fmt.Errorf("decode shape: %w", err)
	}
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("shape: %w", err)
	}
	control, err := listener(vmmctl.FDControl, "control")
	if err != nil {
		return err
	}
	vsock, err := listener(vmmctl.FDVsock, "vsock")
	if err != nil {
		return err
	}
	system, err := kvm.FromFile(os.NewFile(vmmctl.FDKVM, "kvm"))
	if err != nil {
		return err
	}
	console, err := serial.NewLog(os.NewFile(vmmctl.FDConsole, "console"), consoleMax)
	if err != nil {
		return err
	}
	ended := make(chan vmmctl.Exit, 1)
	machine, err := vmm.New(vmm.Config{
		KVM: system, Shape: shape, Console: console,
		OnExit: func(e vmmctl.Exit) { ended <- e },
		Warn:   func(err error) { fmt.Fprintln(os.Stderr, "forkd-vmm:", err) },
	})
	if err != nil {
		return err
	}
	system.Close()
	if vmmctl.Rehearsing(args) {
		if err := machine.Rehearse(); err != nil {
			return fmt.Errorf("rehearse: %w", err)
		}
		vmmctl.Rehearse()
	}
	c := &vmm.Controller{Machine: machine, Vsock: vsock}
	server := vmmctl.NewServer(control, c)
	c.Dial = server.DialHost
	return serve(server, ended)
}

// serve runs until the guest or the daemon ends the VM. The kernel frees it
// with the process, faster than any orderly teardown. Requests are served here,
// on the stack that the rehearsal has made large enough.
func serve(server *vmmctl.Server, ended <-chan vmmctl.Exit) error {
	go func() { // ends with the process, or ends it
		server.SendExit(<-ended)
		os.Exit(0)
	}()
	return server.Serve()
}

// listener takes over an inherited listening Unix socket.
func listener(fd uintptr, name string) (*net.UnixListener, error) {
	f := os.NewFile(fd, name)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("take over %s socket: %w", name, err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("take over %s socket: it is no Unix socket", name)
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}
