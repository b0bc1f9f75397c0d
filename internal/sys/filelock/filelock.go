// Package filelock locks files and folders across processes by flock(2). The kernel releases a lock when all copies
// of its descriptor are closed, so a killed process leaves no lock. The trap: a child process that is being started
// holds a copy for a moment, so a lock that another process waits for is better released by Unlock than by Close.
//
// Start reading at Try.
package filelock

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrHeld reports that another open file has the lock.
var ErrHeld = errors.New("another process has the lock")

// every is the time between two attempts of Wait. A waiting flock(2) could not end with a context.
const every = 50 * time.Millisecond

// Wait locks f exclusively, and waits until ctx ends. waiting, if not nil, is called once before it waits.
func Wait(ctx context.Context, f *os.File, waiting func()) error {
	for {
		err := Try(f)
		if !errors.Is(err, ErrHeld) {
			return err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}
