package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// echoAll reads all input and then sends it back.
func echoAll(c net.Conn) {
	b, _ := io.ReadAll(c)
	_, _ = c.Write(b)
}

func portDaemon(t *testing.T) (*daemon, string) {
	t.Helper()
	d := startDaemon(t)
	d.engine.Ports = map[uint16]func(net.Conn){
		7:  echoAll,
		22: func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-test\r\n"); _, _ = io.Copy(c, c) },
	}
	c := d.client(t)
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "py"})
	if err != nil {
		t.Fatal(err)
	}
	return d, res.Sandboxes[0].DNSID
}

func TestAPortIsAConnection(t *testing.T) {
	d, id := portDaemon(t)
	tcp, err := client.New(client.Options{URL: d.tcp, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for name, c := range map[string]*client.Client{"over TCP": tcp, "over the socket": d.client(t)} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			conn, err := c.DialPort(ctx, id, 7)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			cancel() // it applies to the dialling only
			text := strings.Repeat("all of it ", 100_000)
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(conn); err != nil || string(b) != text {
				t.Errorf("got %d bytes, %v", len(b), err)
			}
		})
	}
}

// A server may send first: data after the answer's header is not lost.
func TestAServerThatSpeaksFirst(t *testing.T) {
	d, id := portDaemon(t)
	conn, err := d.client(t).DialPort(t.Context(), id, 22)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, 14)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "SSH-2.0-test\r\n" {
		t.Errorf("got %q, %v", b, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
}

func TestPortsThatCannotBeDialled(t *testing.T) {
	d, id := portDaemon(t)
	c := d.client(t)
	_, err := c.DialPort(t.Context(), id, 81)
	var e *client.Error
	if !errors.As(err, &e) || e.Code != api.CodePortClosed || e.Reason != api.ReasonPortRefused ||
		e.Details["port"] != "81" || !strings.Contains(e.Message, "no server listens on port 81") {
		t.Errorf("a closed port: %v", err)
	}
	if _, err := c.DialPort(t.Context(), "sb-none", 7); !client.IsNotFound(err) {
		t.Errorf("no sandbox: %v", err)
	}
	if _, err := c.DialPort(t.Context(), id, 0); !errors.As(err, &e) || e.Code != api.CodeInvalid {
		t.Errorf("port 0: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.DialPort(ctx, id, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// When the daemon ends, connections to ports end immediately.
func TestConnectionsToPortsEndWithTheDaemon(t *testing.T) {
	ended := make(chan error, 1)
	t.Run("daemon", func(t *testing.T) {
		d, id := portDaemon(t)
		conn, err := d.client(t).DialPort(t.Context(), id, 22)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer conn.Close()
			_, err := io.Copy(io.Discard, conn)
			ended <- err
		}()
	})
	<-ended
}
