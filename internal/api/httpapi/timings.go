package httpapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Timings are histograms of durations only the engine measures. The engine gets them before the
// server exists (sandbox.Config.Observer). The server then shows them.
type Timings struct {
	of map[sandbox.Op]prometheus.Histogram
}

var _ sandbox.Observer = (*Timings)(nil)

// NewTimings returns empty histograms.
func NewTimings() *Timings {
	return &Timings{of: map[sandbox.Op]prometheus.Histogram{
		sandbox.OpRestore: histogram("forkd_restore_seconds",
			"Time to restore one child up to the gate, including the start of its VMM if no prepared VM was ready."),
		sandbox.OpIdentity: histogram("forkd_identity_seconds", "Time from a child's start to its confirmed identity."),
	}}
}

// Observe implements sandbox.Observer. It ignores failed operations.
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
