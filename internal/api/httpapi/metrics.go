package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// metrics uses a separate registry, so that other packages cannot add metrics.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.HistogramVec
	fork     prometheus.Histogram
	ready    prometheus.Histogram
	children *prometheus.CounterVec
	pause    prometheus.Histogram
	exec     prometheus.Histogram
	eval     prometheus.Histogram
}

func newMetrics(e Engine, v api.VersionInfo, t *Timings, a Audit) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "forkd_http_request_seconds", Help: "Time to answer, by route, method and status.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
		}, []string{"route", "method", "status"}),
		fork: histogram("forkd_fork_seconds",
			"Time of a whole fork, from the request to the last child's confirmed identity."),
		ready: histogram("forkd_fork_child_ready_seconds", "Time from a fork's request to one child's confirmed identity."),
		children: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forkd_fork_children_total", Help: "Requested children, by result.",
		}, []string{"result"}),
		pause: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "forkd_branch_pause_seconds", Help: "Pause of a branched sandbox.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18), // 0.1 ms to 13 s
		}),
		exec: histogram("forkd_exec_seconds", "Time of an exec, program included."),
		eval: histogram("forkd_eval_seconds", "Time of an eval, code included."),
	}
	m.registry.MustRegister(m.requests, m.fork, m.ready, m.children, m.pause, m.exec, m.eval, buildInfo(v),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(engineGauges(e)...)
	m.registry.MustRegister(t.collectors()...)
	m.registry.MustRegister(auditCounters(a)...)
	return m
}

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18), // 0.5 ms to 65 s
	})
}

func buildInfo(v api.VersionInfo) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "forkd_build_info", Help: "Always 1; the labels have the version.",
		ConstLabels: prometheus.Labels{"version": v.Version},
	})
	g.Set(1)
	return g
}

// engineGauges read the engine at each scrape.
func engineGauges(e Engine) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("forkd_snapshots", "Snapshots in the store.", func() float64 {
			list, err := e.ListSnapshots(context.Background())
			if err != nil {
				return 0
			}
			return float64(len(list))
		}),
		gauge("forkd_snapshots_damaged", "Snapshots with a damaged layer.",
			func() float64 {
				list, _ := e.ListSnapshots(context.Background())
				n := 0
				for _, s := range list {
					if len(s.Damaged) > 0 {
						n++
					}
				}
				return float64(n)
			}),
		gauge("forkd_sandboxes_active", "Sandboxes that run, or are stalled for lack of disk space.", func() float64 {
			n := 0
			for _, sb := range e.List() {
				if sb.Status != sandbox.StatusFailed {
					n++
				}
			}
			return float64(n)
		}),
		gauge("forkd_pool_shells_wanted", "Shells to keep ready.", func() float64 {
			n := 0
			for _, p := range e.Pools() {
				n += p.Wanted
			}
			return float64(n)
		}),
	}
}

// auditCounters read the audit log's statistics, if there is a log.
func auditCounters(a Audit) []prometheus.Collector {
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

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// request counts one request. The route's pattern limits the number of series, and so does one
// common label for all unserved methods.
func (m *metrics) request(method, pattern string, status int, took time.Duration) {
	if _, path, ok := strings.Cut(pattern, " "); ok {
		pattern = path
	}
	if pattern == "" {
		pattern = "none"
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		method = "other"
	}
	m.requests.WithLabelValues(pattern, method, strconv.Itoa(status)).Observe(took.Seconds())
}

func (m *metrics) forked(res sandbox.ForkResult) {
	m.fork.Observe(res.ReadyWall.Seconds())
	for _, c := range res.Children {
		if c.Err != nil {
			m.children.WithLabelValues("failed").Inc()
			continue
		}
		m.children.WithLabelValues("ok").Inc()
		m.ready.Observe(c.Info.Ready.Seconds())
	}
}

func (m *metrics) branched(res sandbox.BranchResult) {
	m.pause.Observe(res.Pause.Seconds())
	if res.Fork != nil {
		m.forked(*res.Fork)
	}
}
