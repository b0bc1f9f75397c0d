package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Timings are metrics of events that only the engine and forkd-net see: durations, results, and
// refused flows. The engine gets them before the server exists (sandbox.Config.Observer). The server
// then shows them.
type Timings struct {
	of       map[sandbox.Op]prometheus.Histogram
	ops      *prometheus.HistogramVec
	results  *prometheus.CounterVec
	events   *prometheus.CounterVec
	oomKills prometheus.Counter
	refused  *prometheus.CounterVec
}

var _ sandbox.Observer = (*Timings)(nil)

// NewTimings returns empty metrics.
func NewTimings() *Timings {
	t := &Timings{
		of: map[sandbox.Op]prometheus.Histogram{
			sandbox.OpRestore: histogram("forkd_restore_seconds",
				"Time to restore one child up to the gate, including the start of its VMM if no prepared VM was ready."),
			sandbox.OpIdentity: histogram("forkd_identity_seconds", "Time from a child's start to its confirmed identity."),
		},
		ops: histograms("forkd_operation_seconds", "Time of the engine's successful operations.",
			prometheus.ExponentialBuckets(0.0005, 4, 10), "op"),
		results: counters("forkd_operations_total", "Operations of the engine, by result.", "op", "result"),
		events:  counters("forkd_events_total", "Events, by kind.", "kind"),
		oomKills: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "forkd_oom_kills_total", Help: "Processes killed by guests' kernels for lack of memory.",
		}),
		refused: counters("forkd_network_refused_flows_total", "Refused flows of sandboxes, by forkd-net's verdict.",
			"verdict"),
	}
	for _, op := range operations() {
		t.ops.WithLabelValues(op)
		t.results.WithLabelValues(op, "ok")
		t.results.WithLabelValues(op, "failed")
	}
	for _, kind := range sandbox.EventKinds() {
		t.events.WithLabelValues(kind)
	}
	for _, v := range netVerdicts() {
		t.refused.WithLabelValues(v)
	}
	return t
}

// operations returns the values of the label op.
func operations() []string {
	var all []string
	for _, op := range []sandbox.Op{sandbox.OpBoot, sandbox.OpSave, sandbox.OpBranch, sandbox.OpRollback, sandbox.OpPause,
		sandbox.OpResume, sandbox.OpFork, sandbox.OpRestore, sandbox.OpIdentity, sandbox.OpExec, sandbox.OpEval} {
		all = append(all, string(op))
	}
	return all
}

// netVerdicts returns forkd-net's verdicts on refused flows.
func netVerdicts() []string { return []string{"denied", "limited", "broken"} }

// Observe implements sandbox.Observer. Failed operations have no duration.
func (t *Timings) Observe(op sandbox.Op, took time.Duration, err error) {
	name := oneOf(string(op), operations()...)
	if err != nil {
		t.results.WithLabelValues(name, "failed").Inc()
		return
	}
	t.results.WithLabelValues(name, "ok").Inc()
	t.ops.WithLabelValues(name).Observe(took.Seconds())
	if h := t.of[op]; h != nil {
		h.Observe(took.Seconds())
	}
}

// CountEvents returns a function that counts events before it passes them on.
func (t *Timings) CountEvents(next sandbox.Events) sandbox.Events {
	kinds := sandbox.EventKinds()
	return func(kind, id string, detail map[string]string) {
		t.events.WithLabelValues(oneOf(kind, kinds...)).Inc()
		if kind == sandbox.EventOOM {
			earlier, err := strconv.Atoi(detail["earlier"])
			if err != nil || earlier < 0 {
				earlier = 0
			}
			t.oomKills.Add(float64(1 + earlier))
		}
		next(kind, id, detail)
	}
}

// CountRefused counts refused flows, by forkd-net's verdict.
func (t *Timings) CountRefused(verdict string, n int) {
	t.refused.WithLabelValues(oneOf(verdict, netVerdicts()...)).Add(float64(max(n, 0)))
}

func (t *Timings) collectors() []prometheus.Collector {
	if t == nil {
		return nil
	}
	all := []prometheus.Collector{t.ops, t.results, t.events, t.oomKills, t.refused}
	for _, h := range t.of {
		all = append(all, h)
	}
	return all
}
