// Package netclient is the VMM's end of the wire, the pair of sockets to forkd-net. It requests
// each flow of the guest, and receives a connected descriptor. It opens no sockets itself. Without
// a wire it refuses all flows.
//
// forkd-net has a duplicate of each TCP socket it passed on, so closing ours does not end the
// connection. Both directions are shut down first.
package netclient

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/net/netwire"
	"github.com/forkd/forkd/internal/vm/usernet"
)

// openMax is the maximum number of pending flow requests.
const openMax = 256

// Client is a usernet.Dialer over a replaceable wire.
type Client struct {
	// Link receives the VM's link to a private network. It owns the file. It is set before the first
	// wire. If nil, links are closed.
	Link func(f *os.File)

	mu     sync.Mutex // guards the fields below
	wire   *wire      // nil if there is none
	closed bool
	wg     sync.WaitGroup // of wires' readers
}

var _ usernet.Dialer = (*Client)(nil)

// SetWire makes f the wire and takes ownership of it. Flow requests pending on the previous wire
// are refused; established flows continue.
func (c *Client) SetWire(f *os.File) error {
	conn, err := netwire.NewConn(f)
	if err != nil {
		return err
	}
	w := &wire{conn: conn, link: c.Link,
		calls: map[uint32]chan answer{}, ends: map[uint32]*ending{}}
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

// drop removes a wire that has ended.
func (c *Client) drop(w *wire) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire == w {
		c.wire = nil
	}
}

// Close ends the wire. Established flows continue. It is idempotent.
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
	s, end, err := c.open(ctx, f)
	if err != nil {
		return nil, err
	}
	switch {
	case s.kind != unix.SOCK_STREAM:
	case s.domain == unix.AF_INET, s.domain == unix.AF_INET6:
		end.forget()
		return &stream{socket: s, hard: s.resetOnClose}, nil
	case s.domain == unix.AF_UNIX:
		return &relayed{stream: stream{socket: s, hard: func() {}}, end: end}, nil
	}
	end.forget()
	s.Close()
	return nil, fmt.Errorf("descriptor of a TCP flow is %s: %w", s, netwire.ErrMessage)
}

// DialDatagrams implements usernet.Dialer.
func (c *Client) DialDatagrams(ctx context.Context, f usernet.Flow) (usernet.Datagrams, error) {
	s, end, err := c.open(ctx, f)
	if err != nil {
		return nil, err
	}
	end.forget()
	if s.domain != unix.AF_UNIX || s.kind != unix.SOCK_SEQPACKET {
		s.Close()
		return nil, fmt.Errorf("descriptor of a flow of datagrams is %s: %w", s, netwire.ErrMessage)
	}
	return &datagrams{s}, nil
}

// open requests a flow.
func (c *Client) open(ctx context.Context, f usernet.Flow) (socket, expected, error) {
	c.mu.Lock()
	w := c.wire
	c.mu.Unlock()
	if w == nil {
		return socket{}, expected{}, &usernet.Refusal{Reason: usernet.Prohibited}
	}
	a, err := w.open(ctx, netwire.Flow{Protocol: netwire.Protocol(f.Protocol), Guest: f.Guest, Far: f.Far})
	if err != nil {
		return socket{}, expected{}, err
	}
	end := expected{w, a.id, a.end}
	s, err := socketOf(a.file)
	if err != nil {
		end.forget()
	}
	return s, end, err
}
