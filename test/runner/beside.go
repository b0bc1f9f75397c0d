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

// beside is work that needs only CPU time. It uses the CPU time left by the tests in the machine,
// at the lowest priority. Its output is shown after both have ended.
type beside struct {
	out         bytes.Buffer
	cross, fuzz results
	done        chan struct{}
}

// startBeside starts the phases that are left after the plain tests.
func startBeside(ctx context.Context, o options) *beside {
	b := &beside{done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.cross = crossPhase(ctx, &b.out)
		b.fuzz = fuzzPhase(ctx, o, &b.out)
	}()
	return b
}

// wait waits until all phases have ended, and shows their output.
func (b *beside) wait(out io.Writer) {
	<-b.done
	_, _ = b.out.WriteTo(out)
}

// lowly returns a command with the lowest priority, in a separate session. The kernel divides the
// CPU time between sessions first (sched_autogroup), and the machine has another session.
func lowly(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "19", name}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// runLowly runs a command from lowly.
func runLowly(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	// Some kernels lack this file, and some users may not write it.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte("19"), 0)
	return cmd.Wait()
}
