package compare

import (
	"context"

	"github.com/forkd/forkd/client"
)

// Pair compares the values of a figure that were taken in turn: B beside A.
func Pair(name string, a, b []float64) Figure { return figure(name, a, b) }

// Daemon is a daemon of a build's programs that a bench has for itself.
type Daemon struct{ d *daemon }

// Serve starts one in a folder of its own, and waits until it answers.
func Serve(ctx context.Context, b Build, dir string) (Daemon, error) {
	d, err := start(ctx, b, dir)
	return Daemon{d}, err
}

// Client is of its Unix socket.
func (d Daemon) Client() *client.Client { return d.d.client }

// Stop ends it, and its sandboxes.
func (d Daemon) Stop() error { return d.d.stop() }
