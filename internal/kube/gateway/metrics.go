package gateway

import "github.com/prometheus/client_golang/prometheus"

// metrics have bounded labels: kinds of requests, classes of status, results.
type metrics struct {
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
	asks     *prometheus.CounterVec
	copies   *prometheus.CounterVec
	moves    *prometheus.CounterVec
	searches *prometheus.CounterVec
	lookups  *prometheus.CounterVec
	missing  prometheus.Counter
}

func newMetrics(to prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forkd_gateway_requests_total",
			Help: "Requests by the way they were served, and by the class of the answer's status."}, []string{"kind", "status"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "forkd_gateway_requests_in_flight",
			Help: "Requests in progress, streams and connections included."}),
		asks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forkd_gateway_placements_total",
			Help: "Questions to nodes for new sandboxes and snapshots, by result."}, []string{"result"}),
		copies: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forkd_gateway_copies_total",
			Help: "Snapshots copied to nodes for forks that the nodes with them could not take."}, []string{"result"}),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forkd_gateway_moves_total",
			Help: "Paused sandboxes that other nodes were asked to take for a resume, by result."}, []string{"result"}),
		searches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forkd_gateway_searches_total",
			Help: "Searches at all nodes for sandboxes whose node does not answer, by result."}, []string{"result"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forkd_gateway_lookups_total",
			Help: "Questions to several nodes for an object that a client has named, by result."}, []string{"result"}),
		missing: prometheus.NewCounter(prometheus.CounterOpts{Name: "forkd_gateway_incomplete_lists_total",
			Help: "Lists in which nodes were missing."}),
	}
	if to != nil {
		to.MustRegister(m.requests, m.inFlight, m.asks, m.copies, m.moves, m.searches, m.lookups, m.missing)
	}
	return m
}
