package nodes

import "github.com/prometheus/client_golang/prometheus"

// Metrics show the state of each node. Their series are bounded by the list of nodes.
type Metrics struct {
	up     *prometheus.GaugeVec
	failed *prometheus.CounterVec
}

// NewMetrics registers the metrics of a set.
func NewMetrics(to prometheus.Registerer) *Metrics {
	m := &Metrics{
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "forkd_gateway_node_up",
			Help: "1 if the node answered its last poll with its identity."}, []string{"node"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forkd_gateway_node_polls_failed_total",
			Help: "Polls of the node without a usable answer."}, []string{"node"}),
	}
	to.MustRegister(m.up, m.failed)
	return m
}

// Polled counts one poll.
func (m *Metrics) Polled(node string, err error) {
	up := 1.0
	if err != nil {
		up = 0
		m.failed.WithLabelValues(node).Inc()
	}
	m.up.WithLabelValues(node).Set(up)
}

// Removed drops the series of a node that has left the list.
func (m *Metrics) Removed(node string) {
	m.up.DeleteLabelValues(node)
	m.failed.DeleteLabelValues(node)
}
