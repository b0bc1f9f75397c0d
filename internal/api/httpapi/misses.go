package httpapi

import (
	"errors"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/auditing"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/pace"
)

// Limits of requests for missing sandboxes, for each source address.
const (
	missesPerSecond = 5
	missesAtOnce    = 100
	maxMissSources  = 4096 // sources with a bucket of their own
)

// misses limits the number of IDs a client can guess, because an ID is enough to use a sandbox's
// public ports. It does not limit requests for existing sandboxes. The zero value is ready.
type misses struct {
	mu sync.Mutex // guards by
	by map[string]*pace.Bucket
}

// admit returns an error if this source has requested too many missing sandboxes.
func (m *misses) admit(source string, now time.Time) error {
	if m.bucket(source).Try(now) {
		return nil
	}
	return apierror.New(api.CodeQuota, api.ReasonQuota,
		"too many requests from %s for missing sandboxes: at most %d per second", source, missesPerSecond).
		WithRetry(time.Second)
}

func (m *misses) bucket(source string) *pace.Bucket {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.by[source]
	if b != nil {
		return b
	}
	if m.by == nil {
		m.by = map[string]*pace.Bucket{}
	}
	for old := range m.by { // any entry: a forgotten source only gets a full bucket
		if len(m.by) < maxMissSources {
			break
		}
		delete(m.by, old)
	}
	b = pace.New(missesPerSecond, missesAtOnce)
	m.by[source] = b
	return b
}

// portHost matches the host name of a port: 8080-sb5f3a00120001.forkd.localhost.
var portHost = regexp.MustCompile(`^[0-9]+-`)

// namesPort reports whether a request names a port of a sandbox, by header or by host name. Routes
// of E2B's control API have an ID in their path instead, and require a key.
func namesPort(r *http.Request) bool {
	return r.Header.Get("E2b-Sandbox-Id") != "" || portHost.MatchString(r.Host)
}

// admitGuess returns an error if a request is one guess of an ID too many.
func (s *Server) admitGuess(r *http.Request) error {
	id := s.ingress.Sandbox(r)
	source := auditing.Source(r)
	if id == "" || source == "" || !namesPort(r) {
		return nil
	}
	if _, err := s.exists(sandbox.CanonicalID(id)); !errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	return s.misses.admit(source, time.Now())
}
