// Package daemonlog makes the loggers of the programs that serve, from their flags --log-level and --log-format. The
// programs choose where the lines go. Text of guests is escaped in all of them.
package daemonlog

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// New returns a logger that writes to w. It returns an exit.UsageError for an unknown level or format.
func New(w io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, exit.UsageError{Err: fmt.Errorf("--log-level %q: want debug, info, warn or error", level)}
	}
	opt := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(guesttext.Handler(slog.NewTextHandler(w, opt))), nil
	case "json":
		return slog.New(guesttext.Handler(slog.NewJSONHandler(w, opt))), nil
	}
	return nil, exit.UsageError{Err: fmt.Errorf("--log-format %q: want text or json", format)}
}
