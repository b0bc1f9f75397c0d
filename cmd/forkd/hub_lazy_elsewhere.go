//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/forkd/forkd/client"
)

// pulledFor is for hosts of daemons.
func pulledFor(context.Context, *app, *client.Client, string, bool) (string, error) {
	return "", errors.New("--from needs Linux: run it on the daemon's host")
}

// snapshotOf looks for no snapshots.
func snapshotOf(context.Context, *app, *client.Client, string) string { return "" }
