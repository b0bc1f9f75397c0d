package usernet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// hostDialer dials the host's own sockets: every far address is one listener of this host.
type hostDialer struct {
	tcp, udp string // addresses of the far ends

	mu    sync.Mutex
	flows []Flow
	tcpDo func(ctx context.Context, f Flow) error // called before a dial; its error is the answer
}

func (d *hostDialer) saw(f Flow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flows = append(d.flows, f)
}

func (d *hostDialer) seen() []Flow {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Flow(nil), d.flows...)
}

type hostStream struct{ *net.TCPConn }

func (s hostStream) Abort() {
	s.SetLinger(0)
	s.Close()
}

// WaitRead implements readWaiter.
func (s hostStream) WaitRead() error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var b [1]byte
	var failed error // reading a socket's error clears it, so no other reader may see it
	err = raw.Read(func(fd uintptr) bool {
		_, _, failed = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return failed != syscall.EAGAIN
	})
	return errors.Join(err, failed)
}

func (d *hostDialer) DialTCP(ctx context.Context, f Flow) (Stream, error) {
	d.saw(f)
	if d.tcpDo != nil {
		if err := d.tcpDo(ctx, f); err != nil {
			return nil, err
		}
	}
	var nd net.Dialer
	c, err := nd.DialContext(ctx, "tcp", d.tcp)
	if err != nil {
		return nil, err
	}
	return hostStream{c.(*net.TCPConn)}, nil
}

// hostDatagrams is a UDP socket.
type hostDatagrams struct{ *net.UDPConn }

func (d hostDatagrams) Read(b []byte) (int, error) {
	n, err := d.UDPConn.Read(b)
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = &Refusal{Reset}
	}
	return n, err
}

// echoes answers echo requests like a host.
type echoes struct {
	v6   bool
	back chan []byte
	once sync.Once
	end  chan struct{}
}

func (e *echoes) Write(b []byte) (int, error) {
	m := append([]byte(nil), b...)
	if m[0] = 0; e.v6 {
		m[0] = 129
	}
	select {
	case e.back <- m:
	case <-e.end:
	}
	return len(b), nil
}

func (e *echoes) Read(b []byte) (int, error) {
	select {
	case m := <-e.back:
		return copy(b, m), nil
	case <-e.end:
		return 0, net.ErrClosed
	}
}

func (e *echoes) Close() error {
	e.once.Do(func() { close(e.end) })
	return nil
}

func (d *hostDialer) DialDatagrams(ctx context.Context, f Flow) (Datagrams, error) {
	d.saw(f)
	if d.tcpDo != nil {
		if err := d.tcpDo(ctx, f); err != nil {
			return nil, err
		}
	}
	if f.Protocol == Echo {
		return struct {
			*echoes
			noDeadline
		}{&echoes{v6: f.Far.Addr().Is6(), back: make(chan []byte, 8), end: make(chan struct{})}, noDeadline{}}, nil
	}
	c, err := net.Dial("udp", d.udp)
	if err != nil {
		return nil, err
	}
	return hostDatagrams{c.(*net.UDPConn)}, nil
}

// far is an unused address.
var far = netip.MustParseAddrPort("198.51.100.7:80")
var far6 = netip.MustParseAddrPort("[2001:db8::7]:80")

// refusing returns a dialer that refuses everything.
func refusing(r Reason) *hostDialer {
	return &hostDialer{tcpDo: func(context.Context, Flow) error { return &Refusal{r} }}
}
