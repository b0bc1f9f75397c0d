package ctxsleep_test

import (
	"context"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

func TestFor(t *testing.T) {
	if began := time.Now(); !ctxsleep.For(t.Context(), 20*time.Millisecond) || time.Since(began) < 20*time.Millisecond {
		t.Error("it did not wait")
	}
	if !ctxsleep.For(t.Context(), 0) {
		t.Error("no time is no end of the context")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if began := time.Now(); ctxsleep.For(ctx, time.Minute) || time.Since(began) > 30*time.Second {
		t.Error("it waited on after the end of the context")
	}
	if ctxsleep.For(ctx, 0) {
		t.Error("the context has ended")
	}
}
