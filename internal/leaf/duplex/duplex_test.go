package duplex

import (
	"context"
	"io"
	"net"
	"testing"
)

// pair returns two ends of a TCP connection.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

func TestTheEndOfOneDirectionIsPassedOn(t *testing.T) {
	client, a := pair(t)
	b, server := pair(t)
	joined := make(chan struct{})
	go func() { Join(t.Context(), a, b); close(joined) }()
	go func() {
		all, _ := io.ReadAll(server) // ends only when the client's direction ends
		server.Write(append(all, " answered"...))
		server.Close()
	}()
	io.WriteString(client, "asked and")
	client.CloseWrite()
	if got, err := io.ReadAll(client); err != nil || string(got) != "asked and answered" {
		t.Errorf("got %q, %v", got, err)
	}
	<-joined
}

func TestTheContextEndsBoth(t *testing.T) {
	client, a := pair(t)
	b, server := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	joined := make(chan struct{})
	go func() { Join(ctx, a, b); close(joined) }()
	cancel()
	<-joined
	for _, c := range []net.Conn{client, server} {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes came", n)
		}
	}
}

// A connection without half-close is closed as a whole, so that neither side waits forever.
func TestWithoutHalfClose(t *testing.T) {
	client, a := net.Pipe()
	b, server := net.Pipe()
	joined := make(chan struct{})
	go func() { Join(t.Context(), a, b); close(joined) }()
	client.Close()
	if _, err := io.ReadAll(server); err != nil {
		t.Error(err)
	}
	<-joined
}
