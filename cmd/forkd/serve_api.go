//go:build linux

package main

import (
	"context"
	"sync/atomic"

	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// apiServer holds the API server for code created before it. It is set before the first request.
type apiServer struct{ atomic.Pointer[httpapi.Server] }

// keyName returns the name of a key, which may be deleted.
func (s *apiServer) keyName(id string) string {
	if api := s.Load(); api != nil && id != "" {
		return api.KeyName(id)
	}
	return ""
}

// admitGuest checks the API's quotas. A guest from an earlier daemon may ask before the API exists.
// It gets a retryable error.
func (s *apiServer) admitGuest(ctx context.Context, of sandbox.Info, n int) (func(), error) {
	if api := s.Load(); api != nil {
		return api.AdmitGuest(ctx, of, n)
	}
	return nil, sandbox.Errorf(sandbox.ErrBusy, "", "the daemon has only just started")
}
