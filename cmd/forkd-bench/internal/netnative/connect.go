package netnative

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// way is one path to the site, from a space.
type way struct {
	name  string
	space *space
	to    netip.AddrPort
}

// perTurn is the number of connections in one turn of a way.
const perTurn = 20

// latencies holds the latencies of one way, in microseconds.
type latencies struct{ connected, answered []float64 }

// connects measures the time to connect, and the time to the first answer.
func (w *world) connects(ctx context.Context) ([]Figure, error) {
	hello, err := clientHello()
	if err != nil {
		return nil, err
	}
	ways, done, err := w.ways(ctx)
	defer done()
	if err != nil {
		return nil, err
	}
	took := map[string]*latencies{}
	for turn := range w.Connects/perTurn + 1 {
		for _, way := range ways {
			if took[way.name] == nil || turn == 1 { // the first turn only fills stacks and caches
				took[way.name] = &latencies{}
			}
			err := way.space.do(func() error { return took[way.name].turn(way.to, hello) })
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return connectFigures(took), nil
}

// ways returns the ways to the site. The caller must call done even after an error.
func (w *world) ways(ctx context.Context) (ways []way, done func(), err error) {
	d, err := startDaemon(ctx, w.Program)
	if err != nil {
		return nil, func() {}, err
	}
	var guests []*guest
	done = func() {
		for _, g := range guests {
			g.close()
		}
		d.stop()
	}
	named := public()
	named.Default, named.Allow = netpolicy.Deny, []string{siteName}
	ways = append(ways, way{"direct", w.host, plainPort})
	for _, vm := range []struct {
		name     string
		spec     netpolicy.Spec
		handover bool
		to       netip.AddrPort
	}{{"relayed", public(), false, plainPort}, {"handed", public(), true, plainPort}, {"sni", named, true, namedPort}} {
		wire, err := d.bind(ctx, vm.name, vm.spec, vm.handover)
		if err != nil {
			return nil, done, err
		}
		g, err := newGuest(wire)
		if err != nil {
			return nil, done, err
		}
		guests = append(guests, g)
		ways = append(ways, way{vm.name, g.space, vm.to})
	}
	return ways, done, nil
}

// turn connects perTurn times, sends hello, and waits for a byte.
func (l *latencies) turn(to netip.AddrPort, hello []byte) error {
	for range perTurn {
		began := time.Now()
		fd, err := connect(to)
		if err != nil {
			return err
		}
		connected := time.Since(began)
		_, err = unix.Write(fd, hello)
		if err == nil {
			var n int
			if n, err = unix.Read(fd, make([]byte, 1)); err == nil && n == 0 {
				err = os.ErrClosed
			}
		}
		answered := time.Since(began)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("ask %s: %w", to, err)
		}
		l.connected = append(l.connected, float64(connected.Nanoseconds())/1000)
		l.answered = append(l.answered, float64(answered.Nanoseconds())/1000)
	}
	return nil
}

// The maximum cost of connecting above a direct connection, in microseconds at p50.
const (
	connectMark = 150
	namedMark   = 300
)

func connectFigures(took map[string]*latencies) (all []Figure) {
	direct := took["direct"]
	for _, name := range []string{"relayed", "handed"} {
		for _, q := range []struct {
			suffix string
			at     float64
		}{{"p50", 0.5}, {"p99", 0.99}, {"quickest", 0}} {
			f := Figure{Name: "connect_" + name + "_" + q.suffix, Unit: "us",
				Value: measure.Quantile(took[name].connected, q.at)}
			f = f.Beside(measure.Quantile(direct.connected, q.at), Difference)
			if q.at == 0.5 {
				f = f.Most(connectMark)
			}
			all = append(all, f)
		}
	}
	for _, name := range []string{"relayed", "handed", "sni"} {
		f := Figure{Name: "answer_" + name + "_p50", Unit: "us", Value: measure.Median(took[name].answered)}
		f = f.Beside(measure.Median(direct.answered), Difference)
		if name == "sni" {
			f = f.Most(namedMark)
		}
		all = append(all, f)
	}
	return all
}
