package netnative

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// bulk measures the CPU cost of carrying bytes, over all parts: the guest's and the far end's TCP,
// the engine, and forkd-net.
func (w *world) bulk(ctx context.Context) ([]Figure, error) {
	d, err := startDaemon(ctx, w.Program)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	pairs := []struct {
		name string
		dial func() (near, far net.Conn, err error)
	}{{"loopback", w.loopback}}
	for name, handover := range map[string]bool{"relayed": false, "handed": true} {
		wire, err := d.bind(ctx, name, public(), handover)
		if err != nil {
			return nil, err
		}
		g, err := newGuest(wire)
		if err != nil {
			return nil, err
		}
		defer g.close()
		pairs = append(pairs, struct {
			name string
			dial func() (near, far net.Conn, err error)
		}{name, func() (near, far net.Conn, err error) { return w.through(g) }})
	}
	took := map[string][]float64{}
	for range w.Rounds {
		for _, p := range pairs {
			for _, back := range []bool{false, true} {
				near, far, err := p.dial()
				if err != nil {
					return nil, fmt.Errorf("%s: %w", p.name, err)
				}
				ms, err := w.carry(d, near, far, back)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return nil, fmt.Errorf("%s: %w", p.name, err)
				}
				took[wayName(p.name, back)] = append(took[wayName(p.name, back)], ms)
			}
		}
	}
	var all []Figure
	for _, name := range []string{"relayed", "handed"} {
		for _, back := range []bool{false, true} {
			way := wayName(name, back)
			f := Figure{Name: "bulk_" + way, Unit: "ms of CPU/GiB", Value: measure.Median(took[way])}
			all = append(all, f.Beside(measure.Median(took[wayName("loopback", back)]), Ratio))
		}
	}
	return all, nil
}

func wayName(name string, back bool) string {
	if back {
		return name + "_to_guest"
	}
	return name + "_from_guest"
}

// loopback opens a plain connection within the internet, as the floor.
func (w *world) loopback() (near, far net.Conn, err error) {
	if near, err = w.internet.dial(bulkPort); err != nil {
		return nil, nil, err
	}
	return near, <-w.services.bulk, nil
}

func (w *world) through(g *guest) (near, far net.Conn, err error) {
	if near, err = g.dial(bulkPort); err != nil {
		return nil, nil, err
	}
	return near, <-w.services.bulk, nil
}

// bulkLimit bounds the transfer in one direction.
const bulkLimit = 5 * time.Minute

// carry carries bytes in one direction and returns its CPU time, in ms per GiB.
func (w *world) carry(d *daemon, near, far net.Conn, back bool) (float64, error) {
	defer near.Close()
	defer far.Close()
	near.SetDeadline(time.Now().Add(bulkLimit))
	far.SetDeadline(time.Now().Add(bulkLimit))
	from, to := near, far
	if back {
		from, to = far, near
	}
	before, err := w.cpu(d)
	if err != nil {
		return 0, err
	}
	wrote := make(chan error, 1)
	bytes := int64(w.BulkMiB) << 20
	go func() { wrote <- send(from, bytes) }()
	got, err := receive(to, bytes)
	if err := errors.Join(err, <-wrote); err != nil {
		return 0, fmt.Errorf("after %d bytes: %w", got, err)
	}
	after, err := w.cpu(d)
	return measure.Millis(after-before) * 1024 / float64(w.BulkMiB), err
}

const chunk = 256 << 10

func send(to io.Writer, bytes int64) error {
	buf := make([]byte, chunk)
	for n := int64(0); n < bytes; n += chunk {
		if _, err := to.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

func receive(from io.Reader, bytes int64) (got int64, err error) {
	buf := make([]byte, chunk)
	for got < bytes {
		n, err := from.Read(buf)
		got += int64(n)
		if err != nil {
			return got, err
		}
	}
	return got, nil
}

// cpu returns the CPU time of this process and forkd-net, in user mode and in the kernel.
func (w *world) cpu(d *daemon) (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	theirs, err := d.cpu()
	return time.Duration(u.Utime.Nano()+u.Stime.Nano()) + theirs, err
}
