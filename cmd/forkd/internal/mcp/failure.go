package mcp

import (
	"context"
	"errors"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/mcp/lease"
	"github.com/forkd/forkd/cmd/forkd/internal/mcp/place"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// failure is an error as a model reads it: what happened, its code, and advice.
type failure struct{ hints.Failure }

func (f failure) Error() string {
	text := f.Message + "\ncode: " + string(f.Code)
	if f.Reason != "" {
		text += "\nreason: " + string(f.Reason)
	}
	if f.Hint != "" {
		text += "\nhint: " + f.Hint
	}
	return text
}

// invalid returns an error about a wrong argument.
func invalid(message, hint string) error {
	return hints.With(&client.Error{Code: api.CodeInvalid, Message: message}, hint)
}

// failureOf describes an error. Its text may have a guest's words, so it is made safe to show.
func failureOf(err error) failure {
	f := failure{hints.Failure{
		Message: guesttext.Lines(err.Error()).String(), Code: codeOf(err), Reason: client.ReasonOf(err),
		Hint: inToolWords(hints.Of(err)),
	}}
	if many := (lease.TooManyError{}); errors.As(err, &many) {
		f.Hint = "kill sandboxes that are not needed, or ask for fewer; the limit is --max-sandboxes of forkd mcp"
	}
	return f
}

func codeOf(err error) api.Code {
	var own *client.Error
	var many lease.TooManyError
	switch {
	case errors.As(err, &own):
		return own.Code
	case errors.As(err, &many):
		return api.CodeQuota
	case errors.Is(err, context.Canceled):
		return api.CodeInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return api.CodeTimeout
	}
	return api.CodeInternal
}

// fromDaemon reports whether the daemon itself sent an error, and not a guest's agent.
func fromDaemon(err error) bool {
	var own *client.Error
	return errors.As(err, &own) && own.FromDaemon()
}

// inToolWords replaces commands of the CLI in advice by tools.
func inToolWords(hint string) string {
	return strings.NewReplacer(
		"`forkd ps`", "list_sandboxes", "`forkd snapshot ls`", "list_snapshots", "`forkd snapshot tree`", "snapshot_tree",
		"`forkd inspect ", "`get_sandbox ", "`forkd rollback ", "`rollback_sandbox ", "`forkd logs`", "its log resource",
		"`forkd exec ", "`exec_command ", "`forkd kill ", "`kill_sandbox ", "`forkd resume ", "`resume_sandbox ",
		"`forkd pause ", "`pause_sandbox ", "`forkd fork ", "`spawn_sandboxes ", "`forkd branch ", "`branch_sandbox ",
	).Replace(hint)
}

// metaPrefix begins the names of fields in _meta.
const metaPrefix = "forkd.dev/"

// describeFailures puts code, reason and advice of a failed call into its _meta, for programs.
func describeFailures(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		var f failure
		if r, ok := res.(*sdk.CallToolResult); ok && r != nil && r.IsError && errors.As(r.GetError(), &f) {
			if r.Meta == nil {
				r.Meta = sdk.Meta{}
			}
			r.Meta[metaPrefix+"code"] = f.Code
			for name, text := range map[string]string{"reason": string(f.Reason), "hint": f.Hint} {
				if text != "" {
					r.Meta[metaPrefix+name] = text
				}
			}
		}
		return res, err
	}
}

// notKept returns the error for an output the session does not have.
func notKept(p place.Place) error {
	return &client.Error{Code: api.CodeNotFound, Message: "the session has no output " + p.String() + " any more"}
}
