//go:build linux

package main

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// waitForFile waits until a file exists: waitfor PATH.
func waitForFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor PATH")
	}
	for end := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not come", args[0])
		}
		time.Sleep(5 * time.Millisecond) // elapses: between two looks
	}
}

func TestADaemonThatIsUsedDoesNotEnd(t *testing.T) {
	sandboxes := make(chan int, 1)
	sandboxes <- 1
	w := &idleWatch{after: 20 * time.Millisecond, sandboxes: func() int {
		n := <-sandboxes
		sandboxes <- n
		return n
	}}
	done := w.used()
	ctx, stop := w.watch(t.Context(), slog.New(slog.DiscardHandler))
	defer stop()
	lives := func(why string) {
		t.Helper()
		select {
		case <-ctx.Done():
			t.Fatalf("it ended with %s", why)
		case <-time.After(100 * time.Millisecond):
		}
	}
	lives("a request and a sandbox")
	done()
	lives("a sandbox")
	done = w.used()
	<-sandboxes
	sandboxes <- 0
	lives("a request")
	done()
	<-ctx.Done()
	forever, cancel := (&idleWatch{}).watch(t.Context(), nil)
	if forever.Err() != nil {
		t.Error("it ended at once")
	}
	cancel()
	if forever.Err() != context.Canceled {
		t.Error("it does not end with its owner")
	}
}
