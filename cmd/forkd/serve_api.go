//go:build linux

package main

import (
	"context"
	"sync/atomic"

	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// apiServer is the API, for what is made before it. It is there when the first request comes.
type apiServer struct{ atomic.Pointer[httpapi.Server] }

// keyName is the name of a key, which may be gone.
func (s *apiServer) keyName(id string) string {
	if api := s.Load(); api != nil && id != "" {
		return api.KeyName(id)
	}
	return ""
}

// admitGuest asks the API's quotas. A guest that runs on from an earlier daemon may ask before there
// is an API, and again when it is told so.
func (s *apiServer) admitGuest(ctx context.Context, of sandbox.Info, n int) (func(), error) {
	if api := s.Load(); api != nil {
		return api.AdmitGuest(ctx, of, n)
	}
	return nil, sandbox.Errorf(sandbox.ErrBusy, "", "the daemon has only just started")
}
