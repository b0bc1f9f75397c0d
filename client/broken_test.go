package client_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// dying returns a client of a server with a fixed answer, which closes the connection after it.
func dying(t *testing.T, bytes string) *client.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			_, _ = io.WriteString(c, bytes)
			c.Close()
		}
	}()
	c, err := client.New(client.Options{URL: "tcp://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		l.Close()
		<-ended
	})
	return c
}

func TestDaemonThatEndsInMidRequest(t *testing.T) {
	const head = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
	for name, sent := range map[string]string{
		"at once": "", "in the header": "HTTP/1.1 201 Cr", "before the body": head, "in the body": head + `[{"id":"sb-1"`,
		"in a stream": "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"step\":\"boot\"}\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := dying(t, sent)
			n := 1
			_, fork := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: "py", N: &n})
			_, create := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "x", Image: "i"}, func(api.Step) {})
			_, exec := c.ExecStream(t.Context(), "sb-1", client.ExecOptions{Args: []string{"true"}})
			changes := map[string]error{"create": create}
			if stream := strings.Contains(sent, "chunked"); !stream {
				changes["fork"], changes["kill"] = fork, c.Kill(t.Context(), "sb-1")
				if _, err := c.ListSandboxes(t.Context()); !client.IsBroken(err) || strings.Contains(err.Error(), "may or may not") {
					t.Errorf("list: %v", err)
				}
			}
			if sent == "" { // otherwise it is an answer, but not one of an exec
				changes["exec"] = exec
			}
			for what, err := range changes {
				var e *client.Error
				if !errors.As(err, &e) || !client.IsBroken(err) || client.IsUnreachable(err) || !strings.Contains(err.Error(), "may or may not have taken effect") || e.Reason != api.ReasonMaybeDone {
					t.Errorf("%s: %v", what, err)
				}
			}
			if strings.Contains(fork.Error(), "EOF") {
				t.Errorf("%v is Go's text", fork)
			}
		})
	}
}
