package network

import (
	"errors"
	"fmt"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// check returns an error if a policy is invalid, with the rule and the reason.
func check(s netpolicy.Spec) error {
	_, err := netpolicy.Compile(s)
	if err == nil {
		return nil
	}
	text, _, _ := strings.Cut(err.Error(), "\n") // the first of several
	var rule *netpolicy.RuleError
	if !errors.As(err, &rule) {
		return sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetRule, "%s", text)
	}
	if list, _, in := strings.Cut(text, "["); in { // allow[3]: ...
		text = fmt.Sprintf("%s %q: %s", list, rule.Rule, rule.Msg)
	}
	e := sandbox.Errorf(sandbox.ErrInvalid, sandbox.ReasonNetRule, "%s", text)
	return sandbox.Detailed(sandbox.Detailed(e, "rule", rule.Rule), "why", rule.Msg)
}

// cut narrows a policy to a ceiling and returns the removed parts. forkd-net has the ceiling, too:
// if rules cannot express it, forkd-net decides for each flow.
func cut(asked, ceiling netpolicy.Spec) (netpolicy.Spec, []string, error) {
	left, cuts, err := netpolicy.CutTo(ceiling, asked)
	if err != nil {
		return netpolicy.Spec{}, nil, err
	}
	return left, textsOf(cuts), nil
}

// textsOf formats the cuts for display.
func textsOf(cuts []netpolicy.Cut) (texts []string) {
	for _, c := range cuts {
		texts = append(texts, c.Rule+": "+c.Text)
	}
	return texts
}
