package network

import (
	"reflect"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Judge returns the network of a sandbox for a requested policy and the caller's grant of host
// ports. The result never exceeds the grant or the operator's ceiling. Judge returns an error if a
// rule is invalid.
func (w *Wires) Judge(asked netpolicy.Spec, grant netpolicy.HostGrant) (sandbox.Network, error) {
	if err := check(asked); err != nil {
		return sandbox.Network{}, err
	}
	n := sandbox.Network{Asked: asked, HostPorts: grant}
	granted, cuts, err := grant.Granted(asked, w.cfg.Ceiling)
	if err != nil {
		return sandbox.Network{}, err
	}
	n.Effective, n.Cut = granted, textsOf(cuts)
	if w.cfg.Ceiling != nil {
		var more []string
		if n.Effective, more, err = cut(granted, *w.cfg.Ceiling); err != nil {
			return sandbox.Network{}, err
		}
		n.Cut = append(n.Cut, more...)
	}
	if sandbox.NameOf(n.Effective) != sandbox.PolicyNone {
		n.Warning = w.Off()
	}
	return n, nil
}

func sameSpec(a, b netpolicy.Spec) bool { return reflect.DeepEqual(a, b) }
