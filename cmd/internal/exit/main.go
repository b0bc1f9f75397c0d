package exit

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Main is a program's main: it runs until it has ended, or is interrupted and has ended
// by that, and gives the process its exit code.
func Main(run func(ctx context.Context, args []string) int) {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// endings are the signals to end by, tidily: what was made for the time being is
// taken down. A terminal that is closed is one, unless we were told (nohup) to go on.
func endings() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
