// Package daemonlog makes the loggers of the programs that serve, from their flags --log-level and --log-format. The
// programs choose where the lines go. Text of guests is escaped in all of them.
package daemonlog

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/leaf/guesttext"
)

// Flags are the flags of a program that serves.
type Flags struct {
	Level  string // of --log-level
	Format string // of --log-format
}

// Add adds the flags with their defaults.
func (l *Flags) Add(f *pflag.FlagSet) {
	f.StringVar(&l.Level, "log-level", "info", "log from `LEVEL` up: debug, info, warn or error")
	f.StringVar(&l.Format, "log-format", "text", "log in `FORMAT`: text or json")
}

// Logger returns a logger for the flags; see New.
func (l Flags) Logger(w io.Writer) (*slog.Logger, error) { return New(w, l.Level, l.Format) }

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
