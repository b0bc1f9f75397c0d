package network

import (
	"reflect"

	"github.com/forkd/forkd/internal/netpolicy"
	"github.com/forkd/forkd/internal/sandbox"
)

// Judge says what a sandbox gets that asks for a policy: never more than the operator's
// ceiling leaves. A rule that cannot be read is an error.
func (w *Wires) Judge(asked netpolicy.Spec) (sandbox.Network, error) {
	if err := check(asked); err != nil {
		return sandbox.Network{}, err
	}
	n := sandbox.Network{Asked: asked, Effective: asked}
	if w.cfg.Ceiling != nil {
		var err error
		if n.Effective, n.Cut, err = cut(asked, *w.cfg.Ceiling); err != nil {
			return sandbox.Network{}, err
		}
	}
	if sandbox.NameOf(n.Effective) != sandbox.PolicyNone {
		n.Warning = w.Off()
	}
	return n, nil
}

func sameSpec(a, b netpolicy.Spec) bool { return reflect.DeepEqual(a, b) }
