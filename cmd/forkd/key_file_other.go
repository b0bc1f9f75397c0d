//go:build !linux

package main

import (
	"errors"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/exit"
)

// createKeyInFile needs Linux, as daemons do.
func createKeyInFile(*app, string, api.CreateKeyRequest) error {
	return exit.UsageError{Err: errors.New("--file works on Linux only: make the file on the daemon's host")}
}
