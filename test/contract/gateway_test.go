package contract

import (
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/testing/fakecluster"
)

// notThroughAGateway are the calls that concern one daemon. Scenarios with one of them do not run through a gateway.
var notThroughAGateway = map[string]string{
	"metrics":         "the gateway has metrics of its own, at another address",
	"capacity":        "of one host",
	"node":            "of one host",
	"drain":           "of one host",
	"drain-status":    "of one host",
	"cancel-drain":    "of one host",
	"audit":           "each node has its own log",
	"verify-audit":    "each node has its own log",
	"collect-layers":  "each node has its own store",
	"prune-snapshots": "each node has its own store",
	"list-keys":       "each node has its own keys, made from the same file",
	"create-key":      "each node has its own keys, made from the same file",
	"revoke-key":      "each node has its own keys, made from the same file",
	"rotate-key":      "each node has its own keys, made from the same file",
	"list-secrets":    "each node has its own secrets",
	"get-secret":      "each node has its own secrets",
	"set-secret":      "each node has its own secrets",
	"remove-secret":   "each node has its own secrets",
	"list-volumes":    "each node has its own volumes",
	"get-volume":      "each node has its own volumes",
	"create-volume":   "each node has its own volumes",
	"snapshot-volume": "each node has its own volumes",
	"remove-volume":   "each node has its own volumes",

	"list-private-networks":  "each node has its own networks",
	"get-private-network":    "each node has its own networks",
	"create-private-network": "each node has its own networks",
	"remove-private-network": "each node has its own networks",
	"tenant":                 "each node has its own settings of tenants",
	"set-tenant":             "each node has its own settings of tenants",
	"import-snapshot":        "it concerns the store of one node",
}

// TestOverAGateway runs the scenarios through a gateway in front of three nodes. The clients are unchanged.
func TestOverAGateway(t *testing.T) {
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) {
			cluster := fakecluster.Start(t, 3, parent, nil)
			to := Daemon{URL: cluster.URL, Token: fakecluster.Token, Parent: parent, Fake: true}
			d := c.start(t, to)
			ran := 0
			for _, s := range scenarios(t) {
				if s.Only != "" && s.Only != to.kind() || s.concernsOneDaemon() {
					continue
				}
				ran++
				t.Run(s.Name, func(t *testing.T) { s.run(t, d, c.lacks, to.Parent) })
			}
			if ran < 15 {
				t.Errorf("%d scenarios ran", ran)
			}
		})
	}
}

func (s Scenario) concernsOneDaemon() bool {
	return slices.ContainsFunc(s.Calls(), func(call string) bool { return notThroughAGateway[call] != "" })
}
