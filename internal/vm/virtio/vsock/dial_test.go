package vsock

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
)

// slowPorts is a Dialer that answers only when allowed.
type slowPorts struct{ open chan struct{} }

func (p slowPorts) DialHost(context.Context, uint32) (Conn, error) {
	<-p.open
	return nil, errors.New("connection refused")
}

// A guest that dials without end fills a part of the table. Its further dials are refused
// immediately, and the host still reaches it.
func TestDialCap(t *testing.T) {
	open := make(chan struct{})
	dev := newDevice(slowPorts{open})
	g := startGuest(t, dev)
	path := serve(t, dev)
	g.listen(80)
	const dials = 2 * MaxConns
	refused := make(chan struct{}, dials)
	var wg sync.WaitGroup
	for range dials {
		wg.Go(func() {
			if c, err := g.connect(1022); err == nil {
				t.Errorf("connected %+v", c.key)
			}
			refused <- struct{}{}
		})
	}
	for range dials - MaxDials {
		<-refused
	}
	host, c := dial(t, path, 80), g.accept(80)
	if _, err := host.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	dev.mu.Lock()
	if dev.dialing != MaxDials || dev.live != MaxDials+1 {
		t.Errorf("%d dials and %d connections, want %d and one more", dev.dialing, dev.live, MaxDials)
	}
	dev.mu.Unlock()
	close(open)
	wg.Wait()
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if dev.dialing != 0 {
		t.Errorf("%d dials are left", dev.dialing)
	}
}
