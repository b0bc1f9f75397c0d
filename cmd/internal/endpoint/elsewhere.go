//go:build !linux

package endpoint

import (
	"context"
	"runtime"

	"github.com/forkd/forkd/internal/sys/platform"
)

// Find is the daemon that is named: no other can be on this platform.
func Find(_ context.Context, opt Options) (Endpoint, error) {
	if opt.URL == "" {
		return Endpoint{}, platform.Check(runtime.GOOS, runtime.GOARCH)
	}
	return Endpoint{URL: opt.URL, Token: opt.Token, Where: Named}, nil
}

// Listening is the TCP address of a daemon on this host, where none can be.
func Listening(string) (address, token string) { return "", "" }
