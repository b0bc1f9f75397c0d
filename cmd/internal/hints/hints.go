// Package hints is the CLI's advice: what to do about an error, in the commands and flags
// of forkd. The daemon and the client say what happened, by code and reason; the words
// are here, in one table, for forkd and forkd-bench. The trap: errors of a guest's agent
// have codes of the table as well, but no advice, for the code alone does not tell what
// was not found.
package hints

import (
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// advised is an error of a command with advice of its own.
type advised struct {
	error
	hint string
}

func (e advised) Unwrap() error { return e.error }

// With gives an error advice that no row of the table has.
func With(err error, hint string) error { return advised{err, hint} }

// Of says what to do about an error; it may be empty.
func Of(err error) string {
	if own := (advised{}); errors.As(err, &own) {
		return own.hint
	}
	if e := (*client.Error)(nil); errors.As(err, &e) {
		return hintOf(e)
	}
	if e := reasoned(nil); errors.As(err, &e) {
		return fill(byReason()[api.Reason(e.ReasonName())], e.Details())
	}
	return ""
}

// MachineFlag is the flag that has a machine command mean the machine of that name, with a space before it; empty for
// the default one, which needs none.
func MachineFlag(name string) string {
	if name == "" || name == "default" {
		return ""
	}
	return " --name " + name
}

// reasoned is an error of a daemon that is this process, or of the machine.
type reasoned interface {
	ReasonName() string
	Details() map[string]string
}

func hintOf(e *client.Error) string {
	if e.Reason != "" {
		return fill(byReason()[e.Reason], e.Details)
	}
	if errors.Is(e, fs.ErrPermission) && e.Code == api.CodeUnreachable {
		return "run forkd as the user of the daemon or as one that its socket is open to, or use its TCP address with a token"
	}
	if e.FromDaemon() || e.Status == 0 && (e.Code == api.CodeUnreachable || e.Code == api.CodeBroken) {
		return byCode()[e.Code]
	}
	return ""
}

// placeholder is the name of a detail in the table.
var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// fill puts details in place of their names. Advice that lacks one is left out.
func fill(hint string, details map[string]string) string {
	pairs := make([]string, 0, 2*len(details))
	for name, value := range details {
		pairs = append(pairs, "{"+name+"}", value)
	}
	for _, name := range placeholder.FindAllString(hint, -1) {
		if !slices.Contains(pairs, name) {
			return ""
		}
	}
	return strings.NewReplacer(pairs...).Replace(hint)
}

// Failure is how an error is printed as JSON.
type Failure struct {
	Message string     `json:"error"`
	Code    api.Code   `json:"code"`
	Reason  api.Reason `json:"reason,omitempty"`
	Hint    string     `json:"hint,omitempty"`
}
