package hostileagent

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Limits of an attacked call. The heap limit allows one message of the largest size in its read
// buffers, and garbage.
const (
	patience      = 20 * time.Second
	maxHeap       = 160 << 20
	maxGoroutines = 100
)

// peak is the maximum use of the process during a call.
type peak struct {
	heap       uint64
	goroutines int
}

// watch measures while f runs, and returns the growth.
func watch(f func()) peak {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	begin, goroutines := m.HeapAlloc+m.StackInuse, runtime.NumGoroutine()
	var most peak
	sample := func() {
		runtime.ReadMemStats(&m)
		if now := m.HeapAlloc + m.StackInuse; now > begin {
			most.heap = max(most.heap, now-begin)
		}
		most.goroutines = max(most.goroutines, runtime.NumGoroutine()-goroutines)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				sample()
			case <-stop:
				return
			}
		}
	}()
	f()
	close(stop)
	<-stopped
	sample()
	return most
}

// attacked runs a call. The attack must end it with an error, long before its deadline.
func attacked(t *testing.T, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	used := watch(func() { err = call(ctx) })
	switch {
	case ctx.Err() != nil:
		t.Errorf("the call did not end within %s: %v", patience, err)
	case err == nil:
		t.Error("the call succeeded")
	}
	if used.heap > maxHeap || used.goroutines > maxGoroutines {
		t.Errorf("the call used %d MiB and %d goroutines, want at most %d and %d", used.heap>>20, used.goroutines,
			maxHeap>>20, maxGoroutines)
	}
	return err
}

// wantViolation fails the test if err does not name the agent's violation.
func wantViolation(t *testing.T, err error) {
	t.Helper()
	var broke *agentproto.Violation
	if !errors.As(err, &broke) {
		t.Errorf("%v (%T), want a violation of the protocol", err, err)
	}
}
