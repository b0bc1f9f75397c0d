package client

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/confine/seccomp"
	vmclient "github.com/forkd/forkd/internal/vm/vmctl/client"
)

// plain starts the same process as a child, without a jail.
type plain struct{}

func (plain) Start(_ context.Context, l vmclient.Launch) (vmclient.Started, error) {
	args, err := l.Start.Args()
	if err != nil {
		return vmclient.Started{}, err
	}
	var pidfd int
	p, err := os.StartProcess(l.Binary, args, &os.ProcAttr{Dir: "/", Env: []string{"GOMAXPROCS=2"},
		Files: []*os.File{l.Null, l.Null, l.Log, l.KVM, l.Control, l.Vsock, l.Console}, Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}})
	if err != nil {
		return vmclient.Started{}, err
	}
	return vmclient.Started{PID: p.Pid, PIDFD: os.NewFile(uintptr(pidfd), "pidfd"), Ended: func() string {
		st, err := p.Wait()
		return fmt.Sprint(st, err)
	}}, nil
}

// withFilter adds the jail's filter to starts without filters.
type withFilter struct{ *Spawner }

func (s withFilter) Start(ctx context.Context, l vmclient.Launch) (vmclient.Started, error) {
	l.Start.Seccomp = seccomp.On
	return s.Spawner.Start(ctx, l)
}

// BenchmarkStart measures the cost of the jail: the time from the request until the process has
// executed its program, and the processor time of all involved processes until the process has
// ended.
func BenchmarkStart(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		benchmarkStart(b, plain{}, func() time.Duration { return childTime(b, os.Getpid()) })
	})
	b.Run("jail", func(b *testing.B) {
		s := openSpawner(b, false)
		benchmarkStart(b, s, func() time.Duration { return childTime(b, s.PID()) })
	})
	b.Run("jail and filter", func(b *testing.B) {
		s := openSpawner(b, false)
		benchmarkStart(b, withFilter{s}, func() time.Duration { return childTime(b, s.PID()) })
	})
}

func benchmarkStart(b *testing.B, s vmclient.Starter, used func() time.Duration) {
	before := used()
	var until time.Duration
	for b.Loop() {
		begun := time.Now()
		in := mustLaunch(b, s)
		until += time.Since(begun)
		_ = signalKill(in.PIDFD)
		in.Ended()
	}
	b.ReportMetric(float64(until.Microseconds())/float64(b.N), "start-µs")
	b.ReportMetric(float64((used()-before).Microseconds())/float64(b.N), "cpu-µs")
}

// childTime returns the processor time of a process and of its ended children. The unit is clock
// ticks of 10 ms.
func childTime(b *testing.B, pid int) (total time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	for _, f := range fields[11:15] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		total += time.Duration(n) * 10 * time.Millisecond
	}
	return total
}
