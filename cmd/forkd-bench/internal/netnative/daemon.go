package netnative

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

// daemon is a forkd-net process started by this benchmark, and the control connection to it.
type daemon struct {
	*control.Client
	cmd  *exec.Cmd
	dir  string
	said bytes.Buffer
}

const startLimit = 10 * time.Second

// startDaemon starts forkd-net, and waits until it answers.
func startDaemon(ctx context.Context, program string) (*daemon, error) {
	dir, err := os.MkdirTemp("", "forkd-bench")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir}
	resolvConf, socket := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "control.sock")
	if err := os.WriteFile(resolvConf, []byte("nameserver "+resolver+"\n"), 0o600); err != nil {
		d.stop()
		return nil, err
	}
	d.cmd = exec.CommandContext(ctx, program, "--control", socket, "--resolv-conf", resolvConf,
		"--log", filepath.Join(dir, "audit.log"))
	d.cmd.Stderr = &d.said
	if err := d.cmd.Start(); err != nil {
		d.cmd = nil
		d.stop()
		return nil, fmt.Errorf("start forkd-net: %w", err)
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if d.Client, err = control.Dial(ctx, socket); err == nil {
			return d, nil
		}
		if ctx.Err() != nil || time.Since(began) > startLimit {
			d.stop()
			return nil, fmt.Errorf("start forkd-net: %w; it said: %q", err, d.said.String())
		}
	}
}

// stop ends forkd-net.
func (d *daemon) stop() {
	if d.Client != nil {
		d.Client.Close()
	}
	if d.cmd != nil {
		d.cmd.Process.Signal(unix.SIGTERM)
		d.cmd.Wait()
	}
	os.RemoveAll(d.dir)
}

// bind binds a VM, and returns the VMM's end of its wire.
func (d *daemon) bind(ctx context.Context, vm string, spec netpolicy.Spec, handover bool) (*os.File, error) {
	ours, theirs, err := netwire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	bound, err := d.Bind(ctx, []control.Binding{{VM: vm, Sandbox: vm, Spec: spec, Handover: handover, Wire: theirs}})
	if err == nil {
		err = bound[0].Error()
	}
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("bind %s: %w", vm, err)
	}
	return ours, nil
}

// public returns a policy whose limits never deny a flow of this benchmark.
func public() netpolicy.Spec {
	return netpolicy.Spec{Default: netpolicy.Public,
		Limits: netpolicy.Limits{Flows: 1 << 16, FlowsPerSecond: 100000, DNSPerSecond: 100000}}
}

// cpu returns the CPU time of forkd-net, in steps of 10 ms.
func (d *daemon) cpu() (time.Duration, error) {
	p, err := procfs.NewProc(d.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	st, err := p.Stat()
	return time.Duration(st.CPUTime() * float64(time.Second)), err
}

// memory returns forkd-net's resident memory and its anonymous part, in KiB.
func (d *daemon) memory() (rss, anon float64, err error) {
	p, err := procfs.NewProc(d.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	st, err := p.NewStatus()
	return float64(st.VmRSS) / 1024, float64(st.RssAnon) / 1024, err
}
