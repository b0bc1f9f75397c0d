package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// raiseDescriptors raises the limit of open files, because each flow has one to six.
func raiseDescriptors() error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	if err == nil {
		limit.Cur = limit.Max
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	if err != nil {
		return fmt.Errorf("raise the limit of descriptors: %w", err)
	}
	return nil
}

// lookAgain is the interval of endWhenAlone's checks, unless a tenth of its duration is shorter.
const lookAgain = time.Second

// endWhenAlone calls stop when alone has returned true for the duration long.
func endWhenAlone(ctx context.Context, long time.Duration, alone func() bool, stop func()) {
	tick := time.NewTicker(max(min(lookAgain, long/10), time.Millisecond))
	defer tick.Stop()
	since := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if !alone() {
				since = now
			} else if now.Sub(since) >= long {
				stop()
				return
			}
		}
	}
}
