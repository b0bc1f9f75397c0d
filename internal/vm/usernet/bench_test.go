package usernet

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of this process, including the kernel's part.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const (
	gib     = 1 << 30
	perTurn = 128 << 20 // bytes
)

// BenchmarkBulk carries bytes one way. It compares the engine, with Linux as the guest, with a
// plain loopback connection, the lower limit.
func BenchmarkBulk(b *testing.B) {
	for _, way := range []struct {
		name string
		back bool
	}{{name: "guest to host"}, {name: "host to guest", back: true}} {
		b.Run(way.name+"/engine", func(b *testing.B) {
			conns := make(chan *net.TCPConn, 1)
			g := newLinuxGuest(b, Config{Dialer: &hostDialer{tcp: listen(b, func(c *net.TCPConn) { conns <- c })}}, 0)
			c, err := g.dial("tcp", far.String())
			if err != nil {
				b.Fatal(err)
			}
			bulk(b, c, <-conns, way.back)
		})
		b.Run(way.name+"/loopback", func(b *testing.B) {
			conns := make(chan *net.TCPConn, 1)
			c, err := net.Dial("tcp", listen(b, func(c *net.TCPConn) { conns <- c }))
			if err != nil {
				b.Fatal(err)
			}
			bulk(b, c, <-conns, way.back)
		})
	}
}

// bulk sends perTurn bytes from guest to host, or back.
func bulk(b *testing.B, guest, host net.Conn, back bool) {
	defer guest.Close()
	defer host.Close()
	from, to := guest, host
	if back {
		from, to = host, guest
	}
	b.SetBytes(perTurn)
	chunk, into := make([]byte, 256<<10), make([]byte, 256<<10)
	start := cpuTime(b)
	for b.Loop() {
		wrote := make(chan error, 1)
		go func() {
			for n := 0; n < perTurn; n += len(chunk) {
				if _, err := from.Write(chunk); err != nil {
					wrote <- err
					return
				}
			}
			wrote <- nil
		}()
		for n := 0; n < perTurn; n += len(into) {
			if _, err := io.ReadFull(to, into); err != nil {
				b.Fatal(err)
			}
		}
		if err := <-wrote; err != nil {
			b.Fatal(err)
		}
	}
	used := cpuTime(b) - start
	b.ReportMetric(float64(used.Milliseconds())*gib/perTurn/float64(b.N), "cpu-ms/GiB")
}

// BenchmarkConnect connects and closes, through the engine and directly.
func BenchmarkConnect(b *testing.B) {
	addr := listen(b, func(c *net.TCPConn) { c.Close() })
	b.Run("engine", func(b *testing.B) {
		g := newLinuxGuest(b, Config{Dialer: &hostDialer{tcp: addr}, Limits: Limits{FlowsPerSec: 1 << 20, Flows: 1 << 16}}, 0)
		err := inThread(func() error {
			if err := unix.Setns(g.ns, unix.CLONE_NEWNET); err != nil {
				return err
			}
			connects(b, func() (net.Conn, error) { return dialHere("tcp", far) })
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	})
	b.Run("direct", func(b *testing.B) {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		connects(b, func() (net.Conn, error) { return dialHere("tcp", a.AddrPort()) })
	})
}

func connects(b *testing.B, dial func() (net.Conn, error)) {
	var all []time.Duration
	for b.Loop() {
		start := time.Now()
		c, err := dial()
		if err != nil {
			b.Error(err)
			return
		}
		all = append(all, time.Since(start))
		c.Close()
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
}
