package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/hints"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/sys/platform"
)

// Exit codes in addition to api.Codes. exec and run return the program's own code. Their own
// failures have the codes shells use.
const (
	exitOwnFailure    = 125
	exitNotExecutable = 126
	exitNoProgram     = 127
)

// codedError is an error of this host with a code of the table.
type codedError struct {
	error
	code api.Code
}

func (e codedError) Unwrap() error { return e.error }

// runsPrograms marks commands with the exit code of a program in a guest.
const runsPrograms = "forkd-runs-programs"

// codeOf returns the exit code for an error of cmd.
func codeOf(cmd *cobra.Command, err error) int {
	var code exit.Code
	if errors.As(err, &code) {
		return int(code)
	}
	if errors.Is(err, context.Canceled) {
		return exit.Interrupted
	}
	if cmd != nil && cmd.Annotations[runsPrograms] != "" {
		switch {
		case errors.Is(err, client.ErrNoProgram):
			return exitNoProgram
		case errors.Is(err, client.ErrNotExecutable):
			return exitNotExecutable
		}
		return exitOwnFailure
	}
	return kindOf(err).Exit()
}

// kindOf returns the code of an error, from the daemon or from this process.
func kindOf(err error) api.Code {
	var usage exit.UsageError
	var own *client.Error
	var coded codedError
	var template ui.TemplateError
	switch {
	case errors.Is(err, context.Canceled):
		return api.CodeInterrupted
	case errors.As(err, &template):
		return api.CodeInvalid
	case errors.As(err, &own):
		return own.Code
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &usage):
		return api.CodeInvalid
	case errors.Is(err, platform.ErrUnsupported):
		return api.CodeUnsupported
	case errors.Is(err, endpoint.ErrNotRunning):
		return api.CodeUnreachable
	}
	return cmp.Or(localCode(err), api.CodeInternal)
}

// report prints an error for people, or with --json for programs.
func (a *app) report(cmd *cobra.Command, err error) {
	var code exit.Code
	if errors.As(err, &code) {
		return // the command has already printed it
	}
	exit.Tell(&a.Printer, hints.Failure{
		Message: err.Error(), Code: kindOf(err), Reason: client.ReasonOf(err),
		Hint: inMachine(machineNamed(a), hintOf(cmd, err)),
	})
}

// machineNamed returns the machine that flags named. Advice must name it too. A name from the
// environment also applies to the next command.
func machineNamed(a *app) string { return cmp.Or(a.flags.MachineName, a.named) }

// advisedCommand matches a command in advice about a machine, or about a daemon in a machine.
var advisedCommand = regexp.MustCompile("`forkd ((?:machine|snapshot|image|key|net|store|e2b) [a-z-]+|[a-z0-9-]+)([^`]*)`")

// inMachine adds the machine's name to commands in advice. If name is empty, it returns the hint unchanged.
func inMachine(name, hint string) string {
	if name == "" {
		return hint
	}
	return advisedCommand.ReplaceAllStringFunc(hint, func(command string) string {
		part := advisedCommand.FindStringSubmatch(command)
		flag := " --machine-name " + name
		switch {
		case strings.HasPrefix(part[1], "machine "):
			flag = hints.MachineFlag(name)
		case part[1] == "serve" || part[1] == "doctor":
			return command
		}
		if strings.Contains(part[2], "--help") || strings.Contains(part[2], "--name ") {
			return command
		}
		return "`forkd " + part[1] + flag + part[2] + "`"
	})
}

func hintOf(cmd *cobra.Command, err error) string {
	if hint := exit.Hint(cmd, err); hint != "" || !errors.Is(err, platform.ErrUnsupported) {
		return hint
	}
	return "run it on Linux on x86-64; other commands reach a daemon there with --url or FORKD_URL"
}

// polish records when a command's own work begins. An earlier failure is a mistake on the command
// line. It also makes unknown commands errors.
func polish(a *app, cmd *cobra.Command) {
	if cmd.HasSubCommands() && cmd.RunE == nil && cmd.Run == nil {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = helpOrUnknown
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return countError(cmd, args, check(cmd, args)) }
	}
	if work := cmd.RunE; work != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if emptyArgument(cmd, args) {
				return errors.New("an argument is empty; is a variable not set?")
			}
			if name := emptyFlag(cmd); name != "" {
				return fmt.Errorf("--%s is empty; is a variable not set? Omit the flag if there is no value", name)
			}
			if name := strings.TrimPrefix(cmd.CommandPath(), "forkd "); a.Format.Given() &&
				slices.Contains(withoutJSON(), name) {
				return fmt.Errorf("%s has no result for --format", name)
			}
			a.began = true
			return work(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		polish(a, child)
	}
}

// cobraCount matches cobra's errors about the number of arguments.
var cobraCount = regexp.MustCompile(`^(accepts|requires) `)

// countError describes the arguments of a command, in place of cobra's error about their number.
func countError(cmd *cobra.Command, args []string, err error) error {
	if err == nil || !cobraCount.MatchString(err.Error()) {
		return err
	}
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	_, takes, _ := strings.Cut(cmd.Use, " ")
	switch {
	case takes == "":
		return fmt.Errorf("%s takes no arguments, got %q", name, args)
	case len(args) == 0:
		return fmt.Errorf("%s takes %s, got no argument", name, takes)
	}
	return fmt.Errorf("%s takes %s, got %q", name, takes, args)
}

// emptyFlag returns the name of a flag without a value. Such a flag would not restrict as intended.
// If the default is not empty, an empty value is a valid choice, for example of --domain.
func emptyFlag(cmd *cobra.Command) (name string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch list, isList := f.Value.(pflag.SliceValue); {
		case isList && f.DefValue == "[]": // some accept '' as an empty list
			if got := list.GetSlice(); len(got) == 0 || slices.Contains(got, "") {
				name = f.Name
			}
		case (f.Value.Type() == "string" || f.Value.Type() == "template") && f.DefValue == "" && f.Value.String() == "":
			name = f.Name
		}
	})
	return name
}

// emptyArgument reports whether a name is empty. If the command runs a program, arguments after the
// first belong to the program.
func emptyArgument(cmd *cobra.Command, args []string) bool {
	if len(args) > 1 && (cmd.Annotations[runsPrograms] != "" || cmd.Name() == "eval") {
		args = args[:1]
	}
	return slices.Contains(args, "")
}

// helpOrUnknown is the action of a group of commands.
func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if !cmd.HasParent() && args[0] == "bench" {
		text += "; benchmarks are run by `forkd-bench`"
	}
	for _, s := range alike(cmd, args[0]) {
		text += fmt.Sprintf("; did you mean %q?", s)
	}
	return exit.UsageError{Err: errors.New(text)}
}
