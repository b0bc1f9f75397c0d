// Package hints holds the CLI's advice about errors, with commands and flags of forkd. The daemon
// and the client report errors with code and reason. The advice is here, in one table, for forkd
// and forkd-bench. The trap: errors of a guest's agent have codes of the table as well, but get no
// advice, because the code alone does not identify the missing object.
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

// advised is an error of a command with its own advice.
type advised struct {
	error
	hint string
}

func (e advised) Unwrap() error { return e.error }

// With adds advice to an error outside the table.
func With(err error, hint string) error { return advised{err, hint} }

// Of returns advice about an error. It may be empty.
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

// MachineFlag returns the flag for the machine's name in a machine command, with a leading space.
// It is empty for the default machine, which needs no flag.
func MachineFlag(name string) string {
	if name == "" || name == "default" {
		return ""
	}
	return " --name " + name
}

// reasoned is an error of a daemon in this process, or of the machine.
type reasoned interface {
	ReasonName() string
	Details() map[string]string
}

func hintOf(e *client.Error) string {
	if e.Reason != "" {
		return fill(byReason()[e.Reason], e.Details)
	}
	if errors.Is(e, fs.ErrPermission) && e.Code == api.CodeUnreachable {
		return "run forkd as the daemon's user or root, or use its TCP address with a token"
	}
	if e.FromDaemon() || e.Status == 0 && (e.Code == api.CodeUnreachable || e.Code == api.CodeBroken) {
		return byCode()[e.Code]
	}
	return ""
}

// placeholder matches the name of a detail in the table.
var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// fill replaces names by details. If a detail is missing, it returns no advice.
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

// Failure is the JSON form of an error.
type Failure struct {
	Message string     `json:"error"`            // without the hint
	Code    api.Code   `json:"code"`             // kind of the error, for programs
	Reason  api.Reason `json:"reason,omitempty"` // more precise than Code; may be empty
	Hint    string     `json:"hint,omitempty"`   // advice for people; may be empty
}
