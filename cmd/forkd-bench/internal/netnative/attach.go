package netnative

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/sys/unixfd"
)

// Marks: microseconds per VM, and KiB of forkd-net, without VMs and per VM.
const (
	attachMark = 20
	memoryMark = 20 << 10
	perVMMark  = 4
)

// attaches measures binding VMs, in one call.
func (w *world) attaches(ctx context.Context) (all []Figure, err error) {
	for _, n := range w.VMs {
		var took, floor []float64
		for range w.Rounds {
			d, err := startDaemon(ctx, w.Program)
			if err != nil {
				return nil, err
			}
			_, us, err := attach(ctx, d, n)
			d.stop()
			if err != nil {
				return nil, err
			}
			bare, err := passBare(n)
			if err != nil {
				return nil, fmt.Errorf("pass descriptors: %w", err)
			}
			took, floor = append(took, us), append(floor, bare)
		}
		f := Figure{Name: fmt.Sprintf("attach_%d", n), Unit: "us/VM", Value: measure.Median(took)}
		all = append(all, f.Beside(measure.Median(floor), Alone).Most(attachMark))
		quickest := Figure{Name: fmt.Sprintf("attach_%d_quickest", n), Unit: "us/VM", Value: slices.Min(took)}
		all = append(all, quickest.Beside(slices.Min(floor), Alone))
	}
	return all, nil
}

// attach binds VMs. It returns their wires and the microseconds per VM.
func attach(ctx context.Context, d *daemon, n int) (wires []*os.File, us float64, err error) {
	defer func() {
		if err != nil {
			closeFiles(wires)
		}
	}()
	vms := make([]control.Binding, n)
	for i := range vms {
		ours, theirs, err := netwire.Pair()
		if err != nil {
			return wires, 0, err
		}
		defer theirs.Close()
		wires = append(wires, ours)
		name := fmt.Sprintf("sb-bench-%04d", i)
		vms[i] = control.Binding{VM: name, Sandbox: name, Tag: "bench", Spec: public(), Handover: true, Wire: theirs}
	}
	began := time.Now()
	bound, err := d.Bind(ctx, vms)
	us = float64(time.Since(began).Nanoseconds()) / 1000 / float64(n)
	for _, b := range bound {
		if err == nil {
			err = b.Error()
		}
	}
	if err != nil {
		return wires, 0, fmt.Errorf("bind %d VMs: %w", n, err)
	}
	return wires, us, nil
}

func closeFiles(all []*os.File) {
	for _, f := range all {
		f.Close()
	}
}

// passBare returns the time of passing n descriptors without forkd-net, in microseconds each.
func passBare(n int) (float64, error) {
	ours, theirs, err := netwire.Pair()
	if err != nil {
		return 0, err
	}
	a, err := unixConn(ours)
	if err != nil {
		theirs.Close()
		return 0, err
	}
	defer a.Close()
	b, err := unixConn(theirs)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	fds := make([]int, control.MaxBatch)
	for i := range fds {
		fds[i] = 0
	}
	oob := make([]byte, unix.CmsgSpace(4*control.MaxBatch))
	began := time.Now()
	for left := n; left > 0; left -= control.MaxBatch {
		if _, _, err := a.WriteMsgUnix([]byte{0}, unix.UnixRights(fds[:min(left, len(fds))]...), nil); err != nil {
			return 0, err
		}
		_, k, _, _, err := b.ReadMsgUnix(make([]byte, 1), oob)
		if err != nil {
			return 0, err
		}
		if err := closeRights(oob[:k]); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began).Nanoseconds()) / 1000 / float64(n), nil
}

func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

func closeRights(oob []byte) error {
	fds, err := unixfd.Taken(oob)
	unixfd.Close(fds)
	return err
}

// settle is how long forkd-net idles before its memory is read.
const settle = time.Second

// memory measures forkd-net's memory without VMs, and with many.
func (w *world) memory(ctx context.Context) ([]Figure, error) {
	d, err := startDaemon(ctx, w.Program)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	if err := measure.Pause(ctx, settle); err != nil {
		return nil, err
	}
	rss, before, err := d.memory()
	if err != nil {
		return nil, err
	}
	n := w.VMs[len(w.VMs)-1]
	wires, _, err := attach(ctx, d, n)
	if err != nil {
		return nil, err
	}
	defer closeFiles(wires)
	if err := measure.Pause(ctx, settle); err != nil {
		return nil, err
	}
	_, after, err := d.memory()
	alone := Figure{Name: "forkd_net_rss", Unit: "KiB", Value: rss}
	own := Figure{Name: "forkd_net_anon", Unit: "KiB", Value: before}
	each := Figure{Name: fmt.Sprintf("forkd_net_anon_per_vm_of_%d", n), Unit: "KiB", Value: (after - before) / float64(n)}
	return []Figure{
		alone.Beside(0, Alone).Most(memoryMark), own.Beside(0, Alone), each.Beside(0, Alone).Most(perVMMark),
	}, err
}
