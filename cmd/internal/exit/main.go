package exit

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Main is a program's main function. It calls run, which returns at its end or after an
// interruption, and exits with its code.
func Main(run func(ctx context.Context, args []string) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := endOnHangup(ctx)
	code := run(ctx, os.Args[1:])
	end()
	stop()
	os.Exit(code)
}

// hangup is the reaction of a program to a closed terminal.
type hangup struct {
	mu    sync.Mutex
	react func()
}

type hangupKey struct{}

// endOnHangup ends the program cleanly when its terminal is closed, unless SIGHUP is ignored
// (nohup).
func endOnHangup(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, cancel
	}
	h := &hangup{react: cancel}
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGHUP)
	go func() { // lives as long as the process
		for range came {
			h.mu.Lock()
			react := h.react
			h.mu.Unlock()
			react()
		}
	}()
	return context.WithValue(ctx, hangupKey{}, h), cancel
}

// OnHangup makes SIGHUP call a function instead of ending the program of the context.
func OnHangup(ctx context.Context, react func()) {
	if h, ok := ctx.Value(hangupKey{}).(*hangup); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.react = react
	}
}
