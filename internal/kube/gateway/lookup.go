package gateway

import (
	"net/http"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
)

// A lookup asks several nodes, often all, for an object that the client has named. Any client can name any object, with
// any credential, so lookups have turns as searches have. They are part of usual requests, so they have more. Nothing
// is remembered of them: a client may wait for an object that another one makes.

// lookupShares are the limits of lookups.
var lookupShares = shares{all: 64, address: 48, client: 16, unproven: 8, waiting: 256, wait: 10 * time.Second}

// lookUp returns the nodes of a list that have an object for the client, and the nodes without an answer, as holders
// does. If several have it, those with the snapshot other come alone, if there are any; other may be empty. A credential
// that a node refuses costs one question, and that node is the result: it tells the client.
func lookUp(g *Gateway, r *http.Request, list []*nodes.Node, probe, other string) (has, missing []*nodes.Node,
	err error) {
	if len(list) > 1 { // one question needs no turn
		client := credentialOf(r)
		proven := g.proven.get(client) != ""
		leave, ok := g.lookups.enter(r, client, proven)
		defer leave()
		if !ok {
			g.metrics.lookups.WithLabelValues("busy").Inc()
			return nil, nil, failf(api.CodeBusy, "", "the gateway looks for too many objects of this client or address: "+
				"repeat the request")
		}
		g.metrics.lookups.WithLabelValues("done").Inc()
		if !proven {
			has, missing, list = prove(g, r, client, list, probe)
		}
	}
	more, silent := g.holders(r, list, probe)
	has, missing = append(has, more...), append(missing, silent...)
	if other != "" && len(has) > 1 {
		if both, _ := g.holders(r, has, infoOf(other)); len(both) > 0 {
			has = both
		}
	}
	return has, missing, nil
}

// prove asks the first nodes one by one, until one has judged the client's credential. It returns the results, and the
// nodes that are left to ask: none if the credential was refused.
func prove(g *Gateway, r *http.Request, client string, list []*nodes.Node, probe string) (has, missing,
	left []*nodes.Node) {
	for i, n := range list[:min(len(list), mostChecks)] {
		status := g.probe(r, n, probe)
		switch status {
		case 0:
			missing = append(missing, n)
		case http.StatusUnauthorized:
			return []*nodes.Node{n}, missing, nil // all nodes have the same keys
		case http.StatusNotFound:
		default:
			has = append(has, n)
		}
		left = list[i+1:]
		if status == http.StatusOK || status == http.StatusNotFound {
			g.proven.set(client, "-", provenTime)
			break
		}
	}
	return has, missing, left
}
