package client_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/client"
)

func TestConsoleIsFollowedUntilTheSandboxEnds(t *testing.T) {
	_, c, id := sandbox(t, nil)
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := c.FollowConsole(t.Context(), id, 1, w)
		w.Close()
		ended <- err
	}()
	b := make([]byte, 200)
	if n, err := r.Read(b); err != nil || !strings.Contains(string(b[:n]), "ready") {
		t.Fatalf("%q, %v", b[:n], err)
	}
	if err := c.Kill(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(r)
	if err := <-ended; err != nil || string(rest) != "reboot: Power down\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := c.FollowConsole(t.Context(), id, -1, io.Discard); !client.IsNotFound(err) {
		t.Errorf("of one that is gone: %v", err)
	}
}

func TestWhoFollowsAConsoleMayLeave(t *testing.T) {
	_, c, id := sandbox(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.FollowConsole(ctx, id, -1, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
