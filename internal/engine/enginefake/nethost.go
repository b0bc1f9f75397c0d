package enginefake

import (
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Network policies of tests that need one.
var (
	PublicNet = netpolicy.Spec{Default: netpolicy.Public}
	SomeNet   = netpolicy.Spec{Default: netpolicy.Deny, Allow: []string{"example.org:443"}}
)

// NetHost returns a host with a forkd-net for its engines.
func NetHost(t *testing.T) (*Host, *Net) {
	h, n := NewHost(t), NewNet(t)
	h.Cfg.NetConnect = n.Connect
	t.Cleanup(n.Kill)
	return h, n
}

// ForkNet makes n children with a network policy; with nil, with the snapshot's.
func ForkNet(h *Host, e *engine.Engine, tag string, n int, spec *netpolicy.Spec) []sandbox.Info {
	h.T.Helper()
	r, err := e.Fork(h.T.Context(), sandbox.ForkRequest{Tag: tag, N: n, Network: spec})
	if err != nil {
		h.T.Fatal(err)
	}
	var out []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			h.T.Fatal(c.Err)
		}
		out = append(out, c.Info)
	}
	return out
}
