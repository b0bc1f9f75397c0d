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
	"github.com/forkd/forkd/internal/sys/platform"
)

// Exit codes beside those of api.Codes. exec and run pass on the program's own
// code, so their own failures are where shells have such things.
const (
	exitOwnFailure    = 125
	exitNotExecutable = 126
	exitNoProgram     = 127
)

// codedError is an error of this host that has a code of the table.
type codedError struct {
	error
	code api.Code
}

func (e codedError) Unwrap() error { return e.error }

// runsPrograms marks commands whose exit code is that of a program in a guest.
const runsPrograms = "forkd-runs-programs"

// codeOf is the exit code for an error of cmd.
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

// kindOf finds the code of an error, be it the daemon's or from here.
func kindOf(err error) api.Code {
	var usage exit.UsageError
	var own *client.Error
	var coded codedError
	switch {
	case errors.Is(err, context.Canceled):
		return api.CodeInterrupted
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
	return api.CodeInternal
}

// report prints an error for people, or with --json for programs.
func (a *app) report(cmd *cobra.Command, err error) {
	var code exit.Code
	if errors.As(err, &code) {
		return // whoever returned it said what there was to say
	}
	exit.Tell(&a.Printer, hints.Failure{
		Message: err.Error(), Code: kindOf(err), Reason: client.ReasonOf(err),
		Hint: inMachine(machineNamed(a), hintOf(cmd, err)),
	})
}

// machineNamed is the machine that flags named: advice has to name it, too. What the environment says
// holds for the next command as well.
func machineNamed(a *app) string { return cmp.Or(a.flags.MachineName, a.named) }

// advisedCommand is a command in advice that is about a machine, or a daemon that may be in one.
var advisedCommand = regexp.MustCompile("`forkd ((?:machine|snapshot|image|key|net|store|e2b) [a-z-]+|[a-z0-9-]+)([^`]*)`")

// inMachine has the commands of advice mean the machine of that name; empty: none was named.
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

// polish notes when a command's own work begins, for a failure before that is a
// mistake on the command line; and makes unknown commands errors.
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
				return errors.New("an argument is empty; a variable that is not set?")
			}
			if name := emptyFlag(cmd); name != "" {
				return fmt.Errorf("--%s is empty; a variable that is not set? Leave it out if there is no value", name)
			}
			a.began = true
			return work(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		polish(a, child)
	}
}

// cobraCount is how cobra's texts about the number of arguments begin.
var cobraCount = regexp.MustCompile(`^(accepts|requires) `)

// countError says which arguments a command takes, in place of cobra's count of them.
func countError(cmd *cobra.Command, args []string, err error) error {
	if err == nil || !cobraCount.MatchString(err.Error()) {
		return err
	}
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	_, takes, _ := strings.Cut(cmd.Use, " ")
	switch {
	case takes == "":
		return fmt.Errorf("%s takes no arguments, and was given %q", name, args)
	case len(args) == 0:
		return fmt.Errorf("%s takes %s, and was given nothing", name, takes)
	}
	return fmt.Errorf("%s takes %s, and was given %q", name, takes, args)
}

// emptyFlag is the name of a flag that was given without a value: what it would have narrowed stays wide. Where the
// default is not empty, an empty value is a choice, as that of --domain is.
func emptyFlag(cmd *cobra.Command) (name string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch list, isList := f.Value.(pflag.SliceValue); {
		case isList && f.DefValue == "[]": // some take '' for a list of nothing
			if got := list.GetSlice(); len(got) == 0 || slices.Contains(got, "") {
				name = f.Name
			}
		case f.Value.Type() == "string" && f.DefValue == "" && f.Value.String() == "":
			name = f.Name
		}
	})
	return name
}

// emptyArgument finds a name that is none. What follows the first argument of a
// command that runs something is that thing's own.
func emptyArgument(cmd *cobra.Command, args []string) bool {
	if len(args) > 1 && (cmd.Annotations[runsPrograms] != "" || cmd.Name() == "eval") {
		args = args[:1]
	}
	return slices.Contains(args, "")
}

// helpOrUnknown is what a command does that only holds others.
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
