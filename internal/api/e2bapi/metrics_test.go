package e2bapi_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// silent is an engine with some guests that accept connections and never answer.
type silent struct {
	e2bapi.Engine

	mu    sync.Mutex
	dumb  map[string]bool
	dials []time.Time // of those guests
}

func (s *silent) DialAgent(ctx context.Context, id string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dumb[id] {
		return s.Engine.DialAgent(ctx, id)
	}
	s.dials = append(s.dials, time.Now())
	guest, host := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, guest) }()
	return host, nil
}

// Silent guests delay a request for the metrics of many sandboxes for a limited time, and use no
// other guest's turn.
func TestSilentGuestsDoNotKeepTheMetricsOfOthers(t *testing.T) {
	s := &silent{dumb: map[string]bool{}}
	b := newBench(t, func(o *e2bapi.Options) { s.Engine, o.Engine = o.Engine, s })
	var ids []string
	for range 20 {
		ids = append(ids, b.create(`{"templateID":"base"}`).SandboxID)
	}
	good := b.create(`{"templateID":"base"}`).SandboxID
	s.mu.Lock()
	for _, id := range ids {
		s.dumb[sandbox.CanonicalID(id)] = true
	}
	s.mu.Unlock()
	start := time.Now()
	got := want[struct{ Sandboxes map[string]any }](t,
		b.do("GET", "/sandboxes/metrics?sandbox_ids="+strings.Join(append(ids, good, good, "nobody"), ","), ""), 200)
	took := time.Since(start)
	if len(got.Sandboxes) != 1 || got.Sandboxes[good] == nil {
		t.Errorf("there are metrics of %v, want of %s", got.Sandboxes, good)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	atOnce := 0
	for _, at := range s.dials {
		if at.Sub(start) < 1500*time.Millisecond { // each has longer
			atOnce++
		}
	}
	if took > 8*time.Second || atOnce > 16 || len(s.dials) != 20 {
		t.Errorf("the answer took %s, and asked %d of %d guests at the same time", took, atOnce, len(s.dials))
	}
}
