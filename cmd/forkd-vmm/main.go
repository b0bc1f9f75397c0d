// Command forkd-vmm is the process of one virtual machine. The daemon starts it with its
// descriptors and controls it over a socket (packages vmctl). It is a separate binary, so that a
// VM's process does not contain HTTP, protocol buffers and their memory.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/forkd/forkd/internal/sys/platform"
	"github.com/forkd/forkd/internal/sys/timerslack"
	"github.com/forkd/forkd/internal/vm/kvm"
	"github.com/forkd/forkd/internal/vm/serial"
	"github.com/forkd/forkd/internal/vm/vmctl/server"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
	"github.com/forkd/forkd/internal/vm/vmm/live"
)

// consoleMax bounds the console log, in bytes.
const consoleMax = 256 << 10

// spareThreads is the number of threads soon needed for blocking system calls, beside the threads
// running Go code. The runtime's monitor would start a missing thread, which would then inherit the
// monitor's timer slack.
const spareThreads = 3

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "forkd-vmm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if err := platform.Check(runtime.GOOS, runtime.GOARCH); err != nil {
		return err
	}
	start, err := wire.ParseArgs(args)
	if err != nil {
		return err
	}
	processors := wire.Processors(start.Shape)
	if err := timerslack.SetWorkers(wire.TimerSlack, processors+spareThreads); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	files, err := kernelFiles(start)
	if err != nil {
		return err
	}
	control, err := listener(wire.FDControl, "control")
	if err != nil {
		return err
	}
	vsock, err := listener(wire.FDVsock, "vsock")
	if err != nil {
		return err
	}
	system, err := kvm.FromFile(os.NewFile(wire.FDKVM, "kvm"))
	if err != nil {
		return err
	}
	console, err := serial.NewLog(os.NewFile(wire.FDConsole, "console"), consoleMax)
	if err != nil {
		return err
	}
	ended := make(chan vmm.Exit, 1)
	var daemon *server.Server // made before the VM has a guest
	machine, err := live.New(live.Config{
		KVM: system, Shape: start.Shape, Console: console, Kernel: files,
		Host: live.Host{Vsock: vsock, Dial: func(ctx context.Context, port uint32) (net.Conn, error) {
			return daemon.DialHost(ctx, port)
		}, Net: newNetwork()},
		OnExit:   func(e vmm.Exit) { ended <- e },
		OnHealth: func(h vmm.Health) { daemon.SendHealth(h) },
		Warn:     warn,
	})
	if err != nil {
		return err
	}
	system.Close()
	if start.Prewarm {
		if err := machine.Prewarm(); err != nil {
			return fmt.Errorf("prewarm: %w", err)
		}
		wire.Prewarm()
	}
	controller := &live.Controller{Machine: machine}
	daemon = server.NewServer(control, controller)
	daemon.Confinement = confine(start.Seccomp, controller)
	overrun(controller)
	runtime.GOMAXPROCS(processors) // until now it was one (wire.Environment)
	return serve(daemon, ended)
}

// serve runs until the guest or the daemon ends the VM. The kernel frees the VM with the process,
// faster than an orderly teardown could. Requests are served on this goroutine. Its stack has grown
// during the prewarming.
func serve(daemon *server.Server, ended <-chan vmm.Exit) error {
	go func() { // runs until the process ends, or ends it
		daemon.SendExit(<-ended)
		os.Exit(0)
	}()
	return daemon.Serve()
}

// listener takes over an inherited, listening Unix socket.
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
