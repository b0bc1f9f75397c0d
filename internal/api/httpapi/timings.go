package httpapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Timings are the histograms of what only the engine sees. The engine is told of
// them before there is a server (sandbox.Config.Observer), which then shows them.
type Timings struct {
	of map[sandbox.Op]prometheus.Histogram
}

var _ sandbox.Observer = (*Timings)(nil)

// NewTimings makes empty ones.
func NewTimings() *Timings {
	return &Timings{of: map[sandbox.Op]prometheus.Histogram{
		sandbox.OpRestore: histogram("forkd_restore_seconds",
			"Time to restore one child up to the gate, the start of its VMM included if no shell was ready."),
		sandbox.OpIdentity: histogram("forkd_identity_seconds", "Time from a child's start to its confirmed identity."),
	}}
}

// Observe implements sandbox.Observer. What failed has no time worth counting.
func (t *Timings) Observe(op sandbox.Op, took time.Duration, err error) {
	if h := t.of[op]; h != nil && err == nil {
		h.Observe(took.Seconds())
	}
}

func (t *Timings) collectors() []prometheus.Collector {
	if t == nil {
		return nil
	}
	var all []prometheus.Collector
	for _, h := range t.of {
		all = append(all, h)
	}
	return all
}
