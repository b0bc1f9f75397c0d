// Package netclient is the VMM's end of the wire to forkd-net: it asks for each
// flow that the guest wants, and is handed a connected descriptor. It opens
// nothing itself. Without a wire everything is refused.
//
// The trap: forkd-net has a duplicate of a TCP socket that it handed over, so
// closing ours alone ends nothing; both directions are shut down first.
package netclient

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/netwire"
	"github.com/forkd/forkd/internal/usernet"
)

// openMax is how many flows may be asked for at once.
const openMax = 256

// Client is a usernet.Dialer over a wire that can be replaced.
type Client struct {
	mu     sync.Mutex // guards what follows
	wire   *wire      // nil: there is none
	closed bool
	wg     sync.WaitGroup // of wires' readers
}

var _ usernet.Dialer = (*Client)(nil)

// SetWire makes f, which it takes over, the wire. Flows that were asked for on
// the one before are refused; those that came about go on.
func (c *Client) SetWire(f *os.File) error {
	conn, err := netwire.NewConn(f)
	if err != nil {
		return err
	}
	w := &wire{conn: conn, calls: map[uint32]chan answer{}, ends: map[uint32]*ending{}}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		conn.Close()
		return net.ErrClosed
	}
	before := c.wire
	c.wire = w
	c.wg.Add(1)
	c.mu.Unlock()
	if before != nil {
		before.conn.Close()
	}
	go func() {
		defer c.wg.Done()
		w.receive()
		c.drop(w)
	}()
	return nil
}

// drop forgets a wire that has ended.
func (c *Client) drop(w *wire) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire == w {
		c.wire = nil
	}
}

// Close ends the wire. Flows that came about go on. It is idempotent.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	w := c.wire
	c.mu.Unlock()
	if w != nil {
		w.conn.Close()
	}
	c.wg.Wait()
}

// DialTCP implements usernet.Dialer.
func (c *Client) DialTCP(ctx context.Context, f usernet.Flow) (usernet.Stream, error) {
	conn, end, err := c.open(ctx, f)
	if err != nil {
		return nil, err
	}
	switch conn := conn.(type) {
	case *net.TCPConn:
		end.forget()
		return &stream{socket: conn, hard: func() { conn.SetLinger(0) }}, nil
	case *net.UnixConn:
		if conn.LocalAddr().Network() == "unix" {
			return &relayed{stream: stream{socket: conn, hard: func() {}}, end: end}, nil
		}
	}
	end.forget()
	conn.Close()
	return nil, fmt.Errorf("flow's descriptor is %T: %w", conn, netwire.ErrMessage)
}

// DialDatagrams implements usernet.Dialer.
func (c *Client) DialDatagrams(ctx context.Context, f usernet.Flow) (usernet.Datagrams, error) {
	conn, end, err := c.open(ctx, f)
	if err != nil {
		return nil, err
	}
	end.forget()
	u, ok := conn.(*net.UnixConn)
	if !ok || u.LocalAddr().Network() != "unixpacket" {
		conn.Close()
		return nil, fmt.Errorf("flow's descriptor is %T: %w", conn, netwire.ErrMessage)
	}
	return &datagrams{u}, nil
}

// open asks for a flow.
func (c *Client) open(ctx context.Context, f usernet.Flow) (net.Conn, expected, error) {
	c.mu.Lock()
	w := c.wire
	c.mu.Unlock()
	if w == nil {
		return nil, expected{}, &usernet.Refusal{Reason: usernet.Prohibited}
	}
	a, err := w.open(ctx, netwire.Flow{Protocol: netwire.Protocol(f.Protocol), Guest: f.Guest, Far: f.Far})
	if err != nil {
		return nil, expected{}, err
	}
	defer a.file.Close()
	end := expected{w, a.id, a.end}
	conn, err := net.FileConn(a.file)
	if err != nil {
		end.forget()
	}
	return conn, end, err
}
