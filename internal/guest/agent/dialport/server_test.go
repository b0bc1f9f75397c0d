package dialport

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/dialwire"
)

// start runs a Server on a Unix socket. It returns functions to dial and to end it.
func start(t *testing.T, cfg Config) (dial func() *net.UnixConn, stop func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Addresses == nil {
		cfg.Addresses = func() []net.IP { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- New(cfg).Serve(ctx, l) }()
	end := func() {
		cancel()
		if err, ok := <-served; ok && err != nil {
			t.Errorf("serve: %v", err)
		}
		close(served)
	}
	ended := false
	stop = func() { ended = true; end() }
	t.Cleanup(func() {
		if !ended {
			end()
		}
	})
	return func() *net.UnixConn {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}, stop
}

// ask sends a request and returns the answer.
func ask(t *testing.T, c net.Conn, r dialwire.Request) dialwire.Code {
	t.Helper()
	if err := dialwire.WriteRequest(c, r); err != nil {
		t.Fatal(err)
	}
	code, err := dialwire.ReadAnswer(c)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// echo reads all data from a client and then returns it.
func echo(t *testing.T, address string) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("this host has no such address: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, _ := io.ReadAll(c)
				_, _ = c.Write(b)
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func wantEcho(t *testing.T, c *net.UnixConn) {
	t.Helper()
	if _, err := c.Write([]byte("all of it")); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "all of it" {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestServersAreReachedWhereTheyListen(t *testing.T) {
	dial, _ := start(t, Config{})
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		t.Run(address, func(t *testing.T) {
			c := dial()
			if code := ask(t, c, dialwire.Request{Port: echo(t, address)}); code != dialwire.OK {
				t.Fatalf("got %s", code)
			}
			wantEcho(t, c)
		})
	}
}

// A server may listen only on the network's address.
func TestTheNetworksAddressIsTriedLast(t *testing.T) {
	dial, _ := start(t, Config{Addresses: func() []net.IP { return []net.IP{net.IPv4(127, 0, 0, 2)} }})
	port := echo(t, "127.0.0.2:0")
	c := dial()
	if code := ask(t, c, dialwire.Request{Port: port}); code != dialwire.OK {
		t.Fatalf("got %s", code)
	}
	wantEcho(t, c)
	if code := ask(t, dial(), dialwire.Request{Port: port, Family: dialwire.IPv6}); code != dialwire.Refused {
		t.Errorf("over IPv6: %s", code)
	}
}

func TestNobodyListens(t *testing.T) {
	dial, _ := start(t, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	c := dial()
	if code := ask(t, c, dialwire.Request{Port: port}); code != dialwire.Refused {
		t.Errorf("got %s", code)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after a refusal: %v, want the end", err)
	}
}

func TestWhatIsNoRequest(t *testing.T) {
	dial, _ := start(t, Config{Hello: 50 * time.Millisecond})
	c := dial()
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if code, err := dialwire.ReadAnswer(c); err != nil || code != dialwire.Invalid {
		t.Errorf("text: %s, %v", code, err)
	}
	if code, err := dialwire.ReadAnswer(dial()); err != nil || code != dialwire.Invalid { // sends no bytes
		t.Errorf("silence: %s, %v", code, err)
	}
	refuse, _ := start(t, Config{Admit: func(net.Addr) error { return errors.New("not the host") }, Log: t.Logf})
	if _, err := refuse().Read(make([]byte, 1)); err == nil {
		t.Error("a stranger was answered")
	}
}

func TestThereAreNotTooMany(t *testing.T) {
	dial, _ := start(t, Config{Most: 1})
	port := echo(t, "127.0.0.1:0")
	first := dial()
	if code := ask(t, first, dialwire.Request{Port: port}); code != dialwire.OK {
		t.Fatalf("got %s", code)
	}
	if code := ask(t, dial(), dialwire.Request{Port: port}); code != dialwire.Busy {
		t.Errorf("the second: %s", code)
	}
	wantEcho(t, first)
}

func TestTheEndOfTheServerIsTheEndOfAll(t *testing.T) {
	dial, stop := start(t, Config{})
	port := echo(t, "127.0.0.1:0")
	joined, silent := dial(), dial()
	if code := ask(t, joined, dialwire.Request{Port: port}); code != dialwire.OK {
		t.Fatalf("got %s", code)
	}
	stop() // waits for the connections
	for _, c := range []net.Conn{joined, silent} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("bytes came")
		}
	}
}
