package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/leaf/stopsignal"
)

// stopFlags are the flags for the end of an image's program.
type stopFlags struct {
	signal string
	grace  time.Duration
	asked  bool // one of the flags is given
}

// defaultGrace is the time between a stop signal and SIGKILL, as Docker's.
const defaultGrace = 10 * time.Second

func (s *stopFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.signal, "stop-signal", "", "send `SIGNAL` to the program at the first interrupt, such as SIGQUIT or 3 (default: the image's)")
	f.DurationVar(&s.grace, "stop-timeout", defaultGrace, "kill it `TIME` after its stop signal")
}

func (s *stopFlags) check() error {
	if s.grace < 0 || s.grace > 24*time.Hour {
		return exit.UsageError{Err: fmt.Errorf("--stop-timeout is %s, want 0 to 24h", s.grace)}
	}
	if _, err := stopsignal.Parse(s.signal); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--stop-signal %.40q: %w", s.signal, err)}
	}
	return nil
}

// of returns the end of a program of an image. The image's signal is hostile text.
func (s *stopFlags) of(name, imageSignal string, note func(string, ...any)) (stopper, error) {
	text := imageSignal
	if s.signal != "" {
		text = s.signal
	}
	n, err := stopsignal.Parse(text)
	if err != nil {
		return stopper{}, exit.UsageError{Err: fmt.Errorf("the stop signal of %s is %.40q: %w; give another one with "+
			"--stop-signal, such as SIGTERM", name, text, err)}
	}
	return stopper{n, s.grace, note}, nil
}

// stopper ends a program in three steps: its stop signal, SIGKILL after a time, and the end of its connection.
type stopper struct {
	signal int
	grace  time.Duration
	note   func(format string, args ...any)
}

// killed is the time in which the agent reports the end of a killed program.
const killed = 10 * time.Second

// guard returns a context and signals for a program. The end of ctx asks the program to end. A second interrupt of
// this process ends the returned context. The caller calls release when the program has ended.
func (s stopper) guard(ctx context.Context) (_ context.Context, _ <-chan syscall.Signal, release func()) {
	came := make(chan os.Signal, 4)
	signal.Notify(came, os.Interrupt, syscall.SIGTERM)
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	signals, done := make(chan syscall.Signal, 2), make(chan struct{})
	go func() {
		defer close(done)
		s.watch(ctx, running, came, signals)
		end()
	}()
	return running, signals, func() {
		end()
		<-done
		signal.Stop(came)
	}
}

// watch returns when the program has to end at once, or when it has ended.
func (s stopper) watch(ctx, running context.Context, came <-chan os.Signal, signals chan<- syscall.Signal) {
	select {
	case <-running.Done():
		return
	case <-ctx.Done():
	}
	select { // the first interrupt comes here, too, but not the end of a terminal
	case <-came:
	case <-time.After(100 * time.Millisecond):
	}
	s.note("stopping with %s, killed after %s; interrupt again to kill it now", stopsignal.Name(s.signal), s.grace)
	signals <- syscall.Signal(s.signal)
	if !waits(running, came, s.grace) {
		return
	}
	s.note("the program did not end within %s and is killed", s.grace)
	signals <- syscall.SIGKILL
	waits(running, came, killed)
}

// waits returns whether a time is up before the program has ended and before another interrupt.
func waits(running context.Context, came <-chan os.Signal, limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-running.Done():
	case <-came:
	case <-t.C:
		return true
	}
	return false
}
