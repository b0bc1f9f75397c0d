package hostileagent

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
)

// attack answers one connection until it fails to write.
type attack func(c net.Conn)

// listen serves an attack on a Unix socket and returns its dialer.
func listen(t *testing.T, a attack) agentclient.DialFunc {
	t.Helper()
	path := socketOf(t, a)
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }
}

// socketOf serves an attack on a Unix socket and returns its path.
func socketOf(t *testing.T, a attack) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				a(c)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-served })
	return path
}

// overHTTP reads a request and then attacks the rest of its connection. It never answers requests
// to other paths, such as a program's input.
func overHTTP(path string, a attack) attack {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if !strings.HasSuffix(r.URL.Path, path) {
			_, _ = io.Copy(io.Discard, in)
			return
		}
		go func() { _, _ = io.Copy(io.Discard, in) }()
		a(c)
	}
}

// answer begins an answer that ends with the connection.
func answer(status int, contentType string, a attack) attack {
	return func(c net.Conn) {
		head := fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: %s\r\nConnection: close\r\n\r\n", status, contentType)
		if _, err := io.WriteString(c, head); err == nil {
			a(c)
		}
	}
}

const (
	streamType = "application/connect+proto"
	unaryType  = "application/proto"
)

// envelope is one message of a stream.
func envelope(flags byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(body)))
	return append(b, body...)
}

func message(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// forever repeats bytes until the client closes the connection.
func forever(b []byte) attack {
	for len(b) < 32<<10 {
		b = append(b, b...)
	}
	return func(c net.Conn) {
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
}

// once sends bytes and holds the connection open until the client closes it.
func once(parts ...[]byte) attack {
	return func(c net.Conn) {
		for _, b := range parts {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
		wait(c)
	}
}

// wait returns when the client has closed the connection.
func wait(c net.Conn) {
	b := make([]byte, 1)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}

// cut sends bytes and closes the connection.
func cut(parts ...[]byte) attack {
	return func(c net.Conn) {
		for _, b := range parts {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
}

// after sends bytes before an attack.
func after(b []byte, a attack) attack {
	return func(c net.Conn) {
		if _, err := c.Write(b); err == nil {
			a(c)
		}
	}
}

// gzipped returns n zero bytes, compressed.
func gzipped(n int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.CopyN(z, zeros{}, int64(n))
	z.Close()
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// commandLine returns a client like the CLI's. Its daemon is the agent itself.
func commandLine(t *testing.T, dial agentclient.DialFunc) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: "http://daemon", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
