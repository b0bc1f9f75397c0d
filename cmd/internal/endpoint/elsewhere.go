//go:build !linux

package endpoint

import (
	"context"
	"runtime"

	"github.com/forkd/forkd/internal/sys/platform"
)

// Find returns the named daemon. No other daemon can exist on this platform.
func Find(_ context.Context, opt Options) (Endpoint, error) {
	if opt.URL == "" {
		return Endpoint{}, platform.Check(runtime.GOOS, runtime.GOARCH)
	}
	return Endpoint{URL: opt.URL, Token: opt.Token, Where: Named}, nil
}

// Listening returns no address, because no daemon runs on this platform.
func Listening(string) (address, token string) { return "", "" }
