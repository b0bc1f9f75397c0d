package compare

import (
	"context"

	"github.com/forkd/forkd/client"
)

// Pair compares the values of a figure, measured in turn: B beside A.
func Pair(name string, a, b []float64) Figure { return figure(name, a, b) }

// Daemon is a daemon of a build's programs, used by one bench only.
type Daemon struct{ d *daemon }

// Serve starts a daemon in dir, and waits until it answers.
func Serve(ctx context.Context, b Build, dir string) (Daemon, error) {
	d, err := start(ctx, b, dir)
	return Daemon{d}, err
}

// Client returns a client of the daemon's Unix socket.
func (d Daemon) Client() *client.Client { return d.d.client }

// Stop ends the daemon and its sandboxes.
func (d Daemon) Stop() error { return d.d.stop() }
