package router

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/client"
)

// Inside serves a gateway to this process itself. Its client reaches it without a network.
type Inside struct {
	server *http.Server
	pipes  *pipes
}

// NewInside returns a gateway for this process. Run serves it.
func NewInside(h http.Handler) *Inside {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return &Inside{server: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, Protocols: p},
		pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}}
}

// Run serves until Close.
func (i *Inside) Run() { _ = i.server.Serve(i.pipes) }

// Close ends Run and its connections.
func (i *Inside) Close() error {
	_ = i.pipes.Close() // also before Run
	return i.server.Close()
}

// Client returns a client with a key.
func (i *Inside) Client(key string) (*client.Client, error) {
	// A loopback address, so that no proxy of the environment is used.
	return client.New(client.Options{URL: "http://127.0.0.1", Token: key, UserAgent: "forkd-router", Dial: i.pipes.dial})
}

// pipes is a listener for connections within the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "gateway", Net: "pipe"} }
