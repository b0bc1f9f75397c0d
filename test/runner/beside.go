package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// beside is work that only computes: it runs in the processor time that the tests in the
// machine leave, at the lowest priority, and is shown when both are over.
type beside struct {
	out         bytes.Buffer
	cross, fuzz results
	done        chan struct{}
}

// startBeside begins with what is left to do when the plain tests are over.
func startBeside(ctx context.Context, o options) *beside {
	b := &beside{done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.cross = crossPhase(ctx, &b.out)
		b.fuzz = fuzzPhase(ctx, o, &b.out)
	}()
	return b
}

// wait returns when all is done, and shows it.
func (b *beside) wait(out io.Writer) {
	<-b.done
	_, _ = b.out.WriteTo(out)
}

// lowly is a command of the lowest priority, in a session of its own: the kernel shares
// the processor between sessions first (sched_autogroup), and the machine has another.
func lowly(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "19", name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// runLowly runs such a command.
func runLowly(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	// Not every kernel has it, nor may everybody.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte("19"), 0)
	return cmd.Wait()
}
