package exit

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// Interrupted is the exit code after an interruption, as in shells.
const Interrupted = 130

// Code is an error that carries the exit code of a program. The program has already printed its own
// error.
type Code int

func (c Code) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// UsageError is a mistake on the command line.
type UsageError struct {
	// Err describes the mistake.
	Err error
}

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Hint returns advice about an error of a command. It may be empty. cmd may be nil.
func Hint(cmd *cobra.Command, err error) string {
	var own *client.Error
	var usage UsageError
	hint := hints.Of(err)
	if hint == "" && !errors.As(err, &own) && errors.As(err, &usage) && cmd != nil {
		return fmt.Sprintf("`%s --help` shows how it is used", cmd.CommandPath())
	}
	return hint
}

// Tell prints an error, for people or with --json for programs.
func Tell(p *ui.Printer, e hints.Failure) {
	if !p.JSON || p.Format.Given() {
		p.Failure(e.Message, e.Hint)
		return
	}
	enc := json.NewEncoder(p.Err)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(e)
}
