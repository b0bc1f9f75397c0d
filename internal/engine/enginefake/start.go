package enginefake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func (f *fake) Boot(r vmm.BootConfig) error {
	text, err := io.ReadAll(r.Kernel)
	if err != nil || string(text) != "a kernel" {
		return errors.New("the kernel is no kernel")
	}
	fmt.Fprintln(f.console, "booting with", r.Cmdline)
	if err := f.openDisks(r.Disks); err != nil {
		return err
	}
	f.set(vmm.StateRunning, r.CID)
	switch {
	case f.faulty("boot-panic"):
		fmt.Fprintln(f.console, "[    0.5] Kernel panic - not syncing: no working init found\x1b[31m")
		f.ended <- vmm.Exit{Kind: vmm.ExitReset, Reason: "the guest asked for a reset"}
	case f.faulty("boot-oops"):
		fmt.Fprint(f.console, "[    0.4] Oops: stack guard page: 0000 [#1]\x1b[31m\n"+
			"[    0.5] Kernel panic - not syncing: Fatal exception\n")
		f.ended <- vmm.Exit{Kind: vmm.ExitReset, Reason: "the guest asked for a reset"}
	case f.faulty("boot-silent"):
		fmt.Fprintln(f.console, "waiting for nothing")
	default:
		go sayReady(f)
	}
	return nil
}

func sayReady(f *fake) {
	if c, err := f.server.DialHost(context.Background(), 22); err == nil {
		fmt.Fprintln(f.console, "host port 22 is open!")
		c.Close()
	}
	c, err := f.server.DialHost(context.Background(), agentproto.ReadyPort)
	if err != nil {
		fmt.Fprintln(f.console, "dial host:", err)
		return
	}
	defer c.Close()
	io.WriteString(c, agentproto.ReadyMessage)
}

func (f *fake) Restore(r vmm.RestoreConfig) (res vmm.RestoreResult, err error) {
	state, err := io.ReadAll(io.NewSectionReader(r.State, 0, 1<<20)) // the offset is shared
	switch {
	case err != nil:
		return res, err
	case string(state) != State():
		return res, errors.New("section cpu: its checksum is wrong")
	case f.faulty("restore-die"):
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case f.faulty("restore-fail"):
		return res, errors.New("KVM said no")
	case f.faulty("restore-hang"):
		time.Sleep(time.Hour)
	}
	if err := f.openDisks(r.Disks); err != nil {
		return res, err
	}
	seg := r.Memory[0]
	if seg.File == nil {
		return res, errors.New("it begins with zero pages")
	}
	if f.maps, err = dupExtents(r.Memory); err != nil {
		return res, err
	}
	if err := f.restoredWire(r.Net); err != nil {
		return res, err
	}
	last := r.Memory[len(r.Memory)-1]
	f.size = last.Offset + last.Length
	f.mem, err = unix.Mmap(int(seg.File.Fd()), seg.FileOffset, int(seg.Length),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return res, err
	}
	f.branched = f.mem[0] == 1
	for at := 0; at < len(f.own()); at += 4096 { // pages dirtied by the guest
		f.mem[at] = 1
	}
	switch {
	case r.Gate == nil:
		f.set(vmm.StateRunning, r.CID)
	case r.Prepare:
		f.gate, err = startgate.Load(r.Gate)
		f.set(vmm.StatePrepared, r.CID)
	default:
		f.gate, err = startgate.Load(r.Gate)
		f.set(vmm.StateArmed, r.CID)
	}
	return res, err
}

func (f *fake) Pause() error {
	if f.faulty("pause-fail") {
		return errors.New("a vCPU does not stop")
	}
	f.set(vmm.StatePaused, 0)
	if f.faulty("pause-lost") {
		f.setDisks(func(h *vmm.Health) { h.Lost = "disk 1: flush: input/output error" })
	}
	return nil
}

func (f *fake) Resume() (vmm.ResumeResult, error) {
	if f.Status().State == vmm.StatePrepared && f.faulty("prepared-die") {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if f.Status().State == vmm.StatePrepared && f.faulty("prepared-die-slowly") {
		for fd := 3; fd < 64; fd++ {
			syscall.Shutdown(fd, syscall.SHUT_RDWR)
		}
		time.Sleep(300 * time.Millisecond) // elapses: the time to free its memory
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if f.gate != nil && !f.gate.Wait(func() bool { return false }) {
		return vmm.ResumeResult{}, errors.New("it did not wait")
	}
	f.set(vmm.StateRunning, 0)
	return vmm.ResumeResult{RunningAt: startgate.Now()}, nil
}

// SetNet implements server.Handler.
func (f *fake) SetNet(wire *os.File) error { return f.takeWire("net", wire) }

// OpenNet implements server.Handler.
func (f *fake) OpenNet(wire *os.File) error {
	if wire != nil {
		if err := f.takeWire("given", wire); err != nil {
			return err
		}
	}
	return f.noteNet("open")
}
