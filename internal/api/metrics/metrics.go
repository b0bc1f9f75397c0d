// Package metrics has the metrics of the daemon, in the Prometheus format: requests, forks, branches, the engine's state
// and its operations. Each label has a known list of values, or a limit of their number.
package metrics

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/domain/audit"
	"github.com/forkd/forkd/internal/domain/drain"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Metrics uses a separate registry, so that other packages cannot add metrics. The page
// docs/operate/metrics.md lists all of them. A label has a known list of values, or a limit of their
// number.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	failures *prometheus.CounterVec
	reasons  map[api.Reason]bool
	exec     prometheus.Histogram
	eval     prometheus.Histogram
	forks    forkMetrics
	captures captureMetrics
	served   prometheus.Counter // bytes of snapshots sent to other daemons
	tenants  *tenantLabels
	byTenant *prometheus.CounterVec
}

// forkMetrics are about forks. Each step's time begins with the request.
type forkMetrics struct {
	whole, armed, resumed, ready prometheus.Histogram
	children, failures           *prometheus.CounterVec
	answers                      *firstAnswers
}

// captureMetrics are about branches.
type captureMetrics struct {
	pause                  prometheus.Histogram
	whole, pauses, rounds  *prometheus.HistogramVec
	bytes, results         *prometheus.CounterVec
	written, writtenPaused *prometheus.HistogramVec
}

// Config has what the metrics are about.
type Config struct {
	Engine  roles.Engine
	Version api.VersionInfo
	Drain   *drain.Drain
	// ImageBytes returns the size of the image store. If nil, there is no store.
	ImageBytes func(context.Context) (int64, error)
	// Fetched returns the bytes of snapshots received from other daemons.
	Fetched func() int64
	Timings *Timings // may be nil
	// Audit has the statistics of the audit log. If nil, there is no log.
	Audit interface{ Stats() audit.Stats }
	// Traces has the numbers of sampled spans that ended, of exported ones, and of those that a collector did not take.
	// If nil, there are no spans.
	Traces interface {
		Counts() (ended, exported, failed int64)
	}
}

// New returns the metrics of a daemon.
func New(c Config) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "forkd_http_request_seconds", Help: "Time to answer, by route, method and status.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
		}, []string{"route", "method", "status"}),
		failures: counters("forkd_failures_total", "Failed requests, by the error's code and reason.", "code", "reason"),
		reasons:  knownReasons(),
		exec:     histogram("forkd_exec_seconds", "Time of an exec, program included."),
		eval:     histogram("forkd_eval_seconds", "Time of an eval, code included."),
		forks:    newForkMetrics(),
		captures: newCaptureMetrics(),
		served: prometheus.NewCounter(prometheus.CounterOpts{Name: "forkd_peer_served_bytes_total",
			Help: "Bytes of snapshots sent to other daemons."}),
		tenants:  &tenantLabels{},
		byTenant: counters("forkd_tenant_requests_total", "Authenticated requests, by tenant.", "tenant", "status"),
	}
	for _, row := range api.Codes() {
		if row.Status != 0 {
			m.failures.WithLabelValues(string(row.Code), labelNone)
			m.forks.failures.WithLabelValues(string(row.Code))
		}
	}
	m.registry.MustRegister(m.requests, m.failures, m.exec, m.eval, m.byTenant, buildInfo(c.Version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newEngineCollector(c.Engine, c.ImageBytes, m.tenants, c.Drain))
	m.registry.MustRegister(m.served, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "forkd_peer_fetched_bytes_total", Help: "Bytes of snapshots received from other daemons.",
	}, func() float64 { return float64(c.Fetched()) }))
	m.registry.MustRegister(m.forks.collectors()...)
	m.registry.MustRegister(m.captures.collectors()...)
	m.registry.MustRegister(c.Timings.collectors()...)
	m.registry.MustRegister(auditCounters(c.Audit)...)
	m.registry.MustRegister(spanCounters(c.Traces)...)
	return m
}

func newForkMetrics() forkMetrics {
	f := forkMetrics{
		whole: histogram("forkd_fork_seconds",
			"Time of a whole fork, from the request to the last child's confirmed identity."),
		armed:   histogram("forkd_fork_child_armed_seconds", "Time from a fork's request to one child restored at its gate."),
		resumed: histogram("forkd_fork_child_resumed_seconds", "Time from a fork's request to one child's running vCPUs."),
		ready:   histogram("forkd_fork_child_ready_seconds", "Time from a fork's request to one child's confirmed identity."),
		children: counters("forkd_fork_children_total", "Requested children, by result.",
			"result"),
		failures: counters("forkd_fork_failures_total", "Failed children and refused forks, by the error's code.", "code"),
		answers: &firstAnswers{took: histogram("forkd_first_answer_seconds",
			"Time of the first exec or eval in a child, while its working set is read.")},
	}
	for _, result := range []string{"ok", "failed"} {
		f.children.WithLabelValues(result)
	}
	return f
}

func (f *forkMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{f.whole, f.armed, f.resumed, f.ready, f.children, f.failures, f.answers.took}
}

// expect awaits the first answers of children.
func (f *forkMetrics) expect(children ...sandbox.Child) {
	for _, c := range children {
		if c.Err == nil {
			f.answers.expect(c.Info.ID)
		}
	}
}

func newCaptureMetrics() captureMetrics {
	mode := []string{"mode"}
	sizes := prometheus.ExponentialBuckets(64<<10, 4, 10) // 64 KiB to 16 GiB
	c := captureMetrics{
		pause: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "forkd_branch_pause_seconds", Help: "Pause of a branched sandbox.", Buckets: pauseBuckets(),
		}),
		whole: histograms("forkd_capture_seconds", "Time of a branch without its children.", pauseBuckets(), mode...),
		pauses: histograms("forkd_capture_pause_seconds", "Pause of a branched sandbox, by mode.", pauseBuckets(),
			mode...),
		rounds: histograms("forkd_capture_rounds", "Copying rounds of a branch while the guest ran.",
			[]float64{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32}, mode...),
		bytes:   counters("forkd_capture_bytes_total", "Memory written by branches, by the guest's state.", "mode", "guest"),
		results: counters("forkd_captures_total", "Branches, by mode and result.", "mode", "result"),
		written: histograms("forkd_capture_size_bytes", "Memory in the snapshot's own file, by mode.", sizes, mode...),
		writtenPaused: histograms("forkd_capture_paused_bytes", "Part of it that was copied during the pause.", sizes,
			mode...),
	}
	for _, m := range captureModes() {
		for _, h := range []*prometheus.HistogramVec{c.whole, c.pauses, c.rounds, c.written, c.writtenPaused} {
			h.WithLabelValues(m)
		}
		for _, state := range []string{"running", "paused"} {
			c.bytes.WithLabelValues(m, state)
		}
		for _, result := range []string{"ok", "failed"} {
			c.results.WithLabelValues(m, result)
		}
	}
	return c
}

func (c *captureMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.pause, c.whole, c.pauses, c.rounds, c.bytes, c.results, c.written, c.writtenPaused}
}

func captureModes() []string {
	return []string{string(sandbox.BranchLive), string(sandbox.BranchDiff), string(sandbox.BranchFull)}
}

// pauseBuckets are 0.1 ms to 13 s.
func pauseBuckets() []float64 { return prometheus.ExponentialBuckets(0.0001, 2, 18) }

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18), // 0.5 ms to 65 s
	})
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func buildInfo(v api.VersionInfo) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "forkd_build_info", Help: "Always 1; the labels have the version.",
		ConstLabels: prometheus.Labels{"version": v.Version},
	})
	g.Set(1)
	return g
}

// auditCounters read the audit log's statistics, if there is a log.
func auditCounters(a interface{ Stats() audit.Stats }) []prometheus.Collector {
	if a == nil {
		return nil
	}
	counter := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		counter("forkd_audit_lines_total", "Lines written to the audit log.",
			func() float64 { return float64(a.Stats().Written) }),
		counter("forkd_audit_lost_total", "Actions missing in the audit log because its disk was slow or full.",
			func() float64 { return float64(a.Stats().Lost) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forkd_audit_queued", Help: "Actions waiting for the audit log's disk.",
		}, func() float64 { return float64(a.Stats().Queued) }),
	}
}

func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Request counts one request. Its error's code is in the answer's header: the daemon removes that
// header from the answers of guests.
func (m *Metrics) Request(r *http.Request, n *requestinfo.Info, status int, header http.Header,
	took time.Duration) {
	route := r.Pattern
	if _, path, ok := strings.Cut(route, " "); ok {
		route = path
	}
	if route == "" {
		route = labelNone
	}
	m.requests.WithLabelValues(route, MethodLabel(r.Method), statusLabel(route, status)).Observe(took.Seconds())
	if code := header.Get(api.HeaderError); code != "" {
		reason := labelNone
		if n.Reason != "" {
			reason = labelOther
			if m.reasons[n.Reason] {
				reason = string(n.Reason)
			}
		}
		m.failures.WithLabelValues(CodeLabel(api.Code(code)), reason).Inc()
	}
	if n.Proved() {
		m.byTenant.WithLabelValues(m.tenants.of(n.Asker.Tenant), statusClass(status)).Inc()
	}
}

func (m *Metrics) forked(res sandbox.ForkResult, err error) {
	f := &m.forks
	if err != nil {
		f.failures.WithLabelValues(string(apierror.CodeOf(err))).Inc()
		return
	}
	f.whole.Observe(res.ReadyWall.Seconds())
	for _, c := range res.Children {
		if c.Err != nil {
			f.children.WithLabelValues("failed").Inc()
			f.failures.WithLabelValues(string(apierror.CodeOf(c.Err))).Inc()
			continue
		}
		f.children.WithLabelValues("ok").Inc()
		f.armed.Observe(c.Info.Armed.Seconds())
		f.resumed.Observe(c.Info.Resumed.Seconds())
		f.ready.Observe(c.Info.Ready.Seconds())
	}
}

func (m *Metrics) branched(mode sandbox.BranchMode, res sandbox.BranchResult, err error) {
	if mode == "" {
		mode = sandbox.BranchLive
	}
	c, label := &m.captures, oneOf(string(mode), captureModes()...)
	if err != nil {
		c.results.WithLabelValues(label, "failed").Inc()
		return
	}
	c.results.WithLabelValues(label, "ok").Inc()
	c.pause.Observe(res.Pause.Seconds())
	c.pauses.WithLabelValues(label).Observe(res.Pause.Seconds())
	c.whole.WithLabelValues(label).Observe(res.Total.Seconds())
	c.rounds.WithLabelValues(label).Observe(float64(res.Rounds))
	c.written.WithLabelValues(label).Observe(float64(res.Bytes))
	c.writtenPaused.WithLabelValues(label).Observe(float64(res.PausedBytes))
	c.bytes.WithLabelValues(label, "paused").Add(float64(res.PausedBytes))
	c.bytes.WithLabelValues(label, "running").Add(float64(max(res.Bytes-res.PausedBytes, 0)))
	if res.Fork != nil {
		m.forks.expect(res.Fork.Children...)
		m.forked(*res.Fork, nil)
	}
}

func (m *Metrics) Execed(id string, took time.Duration, err error) {
	m.exec.Observe(took.Seconds())
	m.forks.answers.answered(id, took, err)
}

func (m *Metrics) Evaled(id string, took time.Duration, err error) {
	m.eval.Observe(took.Seconds())
	m.forks.answers.answered(id, took, err)
}

// Measured returns the engine with a measurement of the forks and branches of all APIs. Forks by guests do not pass
// here.
func (m *Metrics) Measured(e roles.Engine) roles.Engine {
	e.Sandboxes = measuredSandboxes{e.Sandboxes, m}
	e.Branches = measuredBranches{e.Branches, m}
	return e
}

type measuredSandboxes struct {
	roles.Sandboxes
	metrics *Metrics
}

type measuredBranches struct {
	roles.Branches
	metrics *Metrics
}

// Fork forks, and counts the result.
func (e measuredSandboxes) Fork(ctx context.Context, req sandbox.ForkRequest) (sandbox.ForkResult, error) {
	each := req.Each
	if each != nil { // a client may use a child before the fork is complete
		req.Each = func(c sandbox.Child) {
			e.metrics.forks.expect(c)
			each(c)
		}
	}
	res, err := e.Sandboxes.Fork(ctx, req)
	if each == nil {
		e.metrics.forks.expect(res.Children...)
	}
	e.metrics.forked(res, err)
	return res, err
}

// Branch branches, and counts the result.
func (e measuredBranches) Branch(ctx context.Context, req sandbox.BranchRequest) (sandbox.BranchResult, error) {
	res, err := e.Branches.Branch(ctx, req)
	e.metrics.branched(req.Mode, res, err)
	return res, err
}

// Sent counts bytes of a snapshot sent to another daemon.
func (m *Metrics) Sent(n int64) { m.served.Add(float64(n)) }

// Gatherer returns the source of the metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// spanCounters returns the counters of an exporter, which may be nil.
func spanCounters(t interface {
	Counts() (ended, exported, failed int64)
}) []prometheus.Collector {
	counter := func(result string, value func(ended, exported, failed int64) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "forkd_trace_spans_total",
			Help:        "Spans of sampled traces, by result.",
			ConstLabels: prometheus.Labels{"result": result}}, func() float64 {
			if t == nil {
				return 0
			}
			return float64(value(t.Counts()))
		})
	}
	return []prometheus.Collector{
		counter("ended", func(ended, _, _ int64) int64 { return ended }),
		counter("exported", func(_, exported, _ int64) int64 { return exported }),
		counter("failed", func(_, _, failed int64) int64 { return failed }),
	}
}
