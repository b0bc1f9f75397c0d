package netnative

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/vm/netclient"
	"github.com/forkd/forkd/internal/vm/usernet"
)

// cutMark is in milliseconds.
const cutMark = 10

// cuts measures the time until flows end after a policy change has denied them.
func (w *world) cuts(ctx context.Context) (all []Figure, err error) {
	d, err := startDaemon(ctx, w.Program)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	for _, n := range w.Flows {
		var took, floor []float64
		for round := range w.Rounds {
			bare, err := w.cutBare(n)
			if err != nil {
				return nil, err
			}
			ms, err := w.cut(ctx, d, fmt.Sprintf("cut-%d-%d", n, round), n)
			if err != nil {
				return nil, fmt.Errorf("cut %d flows: %w", n, err)
			}
			took, floor = append(took, ms), append(floor, bare)
		}
		f := Figure{Name: fmt.Sprintf("cut_%d_flows", n), Unit: "ms", Value: measure.Median(took)}
		all = append(all, f.Beside(measure.Median(floor), Alone).Most(cutMark))
	}
	return all, nil
}

// cut opens flows to be handed over, then denies all, and waits until each has failed.
func (w *world) cut(ctx context.Context, d *daemon, vm string, n int) (float64, error) {
	wire, err := d.bind(ctx, vm, public(), true)
	if err != nil {
		return 0, err
	}
	var client netclient.Client
	defer client.Close()
	if err := client.SetWire(wire); err != nil {
		return 0, err
	}
	ends, far, err := w.open(n, func(i int) (io.ReadCloser, error) {
		return client.DialTCP(ctx, usernet.Flow{Protocol: usernet.TCP, Far: bulkPort,
			Guest: netip.AddrPortFrom(guestnet.Guest4.Addr(), uint16(1024+i))})
	})
	defer closeAll(far)
	defer closeAll(ends)
	if err != nil {
		return 0, err
	}
	var updated error
	return failAfter(ends, func() {
		_, updated = d.Update(ctx, vm, netpolicy.Spec{})
	}), updated
}

// cutBare resets as many plain connections, and waits until their far ends have seen the reset.
func (w *world) cutBare(n int) (float64, error) {
	near, far, err := w.open(n, func(int) (io.ReadCloser, error) { return w.host.dial(bulkPort) })
	defer closeAll(far)
	defer closeAll(near)
	if err != nil {
		return 0, err
	}
	return failAfter(far, func() {
		for _, c := range near {
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}), nil
}

// open opens connections to the site, and returns both ends of each.
func (w *world) open(n int, dial func(i int) (io.ReadCloser, error)) (near, far []io.ReadCloser, err error) {
	for i := range n {
		c, err := dial(i)
		if err != nil {
			return near, far, err
		}
		near, far = append(near, c), append(far, <-w.services.bulk)
	}
	return near, far, nil
}

// failAfter returns the milliseconds from the start of end until all reads have failed.
func failAfter(conns []io.ReadCloser, end func()) float64 {
	var reading, failed sync.WaitGroup
	for _, c := range conns {
		reading.Add(1)
		failed.Go(func() {
			reading.Done()
			c.Read(make([]byte, 1))
		})
	}
	reading.Wait()
	began := time.Now()
	end()
	failed.Wait()
	return measure.Millis(time.Since(began))
}

func closeAll(all []io.ReadCloser) {
	for _, c := range all {
		c.Close()
	}
}
