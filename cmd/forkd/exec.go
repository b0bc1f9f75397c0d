package main

import (
	"context"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
)

// streams are the flags of commands that run a program in a sandbox.
type streams struct {
	interactive, tty bool
	env              []string
	user, cwd        string

	signals <-chan syscall.Signal // for the program; may be nil
}

func (s *streams) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the first argument are the program's
	f.BoolVarP(&s.interactive, "interactive", "i", false, "pass standard input to the program")
	f.BoolVarP(&s.tty, "tty", "t", false, "run the program on a terminal")
	f.StringArrayVarP(&s.env, "env", "e", nil, "set an environment variable, `NAME=VALUE`; may be repeated")
	f.StringVarP(&s.user, "user", "u", "", "run the program as `USER` (default: the image's)")
	f.StringVarP(&s.cwd, "workdir", "w", "", "run the program in `DIR` (default: the image's)")
	cmd.Annotations = map[string]string{runsPrograms: "yes"}
}

func newExecCommand(a *app) *cobra.Command {
	var s streams
	var detach bool
	cmd := &cobra.Command{
		Use:   "exec [flags] ID [--] PROGRAM [ARG...]",
		Short: "Run a program in a sandbox",
		Long: "Run a program in a sandbox, and print its output as it arrives. The exit code is the program's. It\n" +
			"is 125 if forkd fails, 126 if the program cannot be executed, and 127 if it does not exist.\n\n" +
			"An interrupt of this command kills the program and its child processes. With --detach the command\n" +
			"prints the program's process ID when it has started, and the program runs on without it. Its\n" +
			"output is discarded.",
		Example:           "  forkd exec sb-5f3a-0001 -- python3 -c 'print(1)'\n  forkd exec -it sb-5f3a-0001 bash",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.complete().ids(),
		RunE: func(cmd *cobra.Command, args []string) error {
			program := args[1:]
			if len(program) > 1 && program[0] == "--" {
				program = program[1:]
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if detach {
					return a.startProgram(ctx, c, args[0], program, s)
				}
				return a.runProgram(ctx, c, args[0], program, s)
			})
		},
	}
	s.addFlags(cmd)
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "start the program, print its process ID, and let it run")
	cmd.MarkFlagsMutuallyExclusive("detach", "interactive")
	cmd.MarkFlagsMutuallyExclusive("detach", "tty")
	return cmd
}

// startProgram starts a program in a sandbox without its streams, and prints its process ID.
func (a *app) startProgram(ctx context.Context, c *client.Client, id string, program []string, s streams) error {
	vars, err := environment(s.env)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pid := uint32(0)
	_, err = c.ExecStream(ctx, id, client.ExecOptions{Args: program, Env: vars, Cwd: s.cwd, User: s.user, Outlive: true,
		Started: func(started uint32) {
			pid = started
			stop()
		}})
	if pid == 0 {
		return err
	}
	return a.Line("%d", pid)
}

// runProgram connects a program in a sandbox with this process's streams.
func (a *app) runProgram(ctx context.Context, c *client.Client, id string, program []string, s streams) error {
	vars, err := environment(s.env)
	if err != nil {
		return err
	}
	opt := client.ExecOptions{Args: program, Env: vars, Cwd: s.cwd, User: s.user, Stdout: a.Out, Stderr: a.Err,
		Signals: s.signals}
	if s.interactive {
		opt.Stdin = os.Stdin
	}
	if s.tty {
		restore, err := terminalOptions(ctx, &opt, s.interactive)
		if err != nil {
			return err
		}
		defer restore()
	}
	st, err := c.ExecStream(ctx, id, opt)
	if err == nil && st.KilledBy != "" {
		a.Note("%s", st.KilledBy)
	}
	if err == nil && st.ExitCode != 0 {
		return exit.Code(st.ExitCode)
	}
	return err
}

// endOfTerminal is the text a user types for the end of input: once to send the current line, once
// for the end.
const endOfTerminal = "\x04\x04"

// terminalOptions gives the program a terminal with the settings of ours, if we have one. The
// returned function restores our terminal.
func terminalOptions(ctx context.Context, opt *client.ExecOptions, interactive bool) (restore func(), err error) {
	opt.Terminal = &client.Size{Cols: 80, Rows: 24}
	fd := int(os.Stdin.Fd())
	if interactive && !term.IsTerminal(fd) {
		opt.Stdin = io.MultiReader(opt.Stdin, strings.NewReader(endOfTerminal))
	}
	if !interactive || !term.IsTerminal(fd) {
		return func() {}, nil
	}
	if _, set := opt.Env["TERM"]; !set {
		opt.Env["TERM"] = os.Getenv("TERM")
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, err
	}
	size := sizeOf(fd)
	*opt.Terminal = size
	ctx, stop := context.WithCancel(ctx)
	resized, done := make(chan client.Size), make(chan struct{})
	opt.Resize = resized
	go func() {
		defer close(done)
		watchSize(ctx, fd, size, resized)
	}()
	return func() {
		stop()
		<-done
		_ = term.Restore(fd, old)
	}, nil
}

func sizeOf(fd int) client.Size {
	cols, rows, err := term.GetSize(fd)
	if err != nil {
		return client.Size{Cols: 80, Rows: 24}
	}
	return client.Size{Cols: uint16(cols), Rows: uint16(rows)}
}

// watchSize sends the terminal's size when it has changed, until ctx ends.
func watchSize(ctx context.Context, fd int, last client.Size, to chan<- client.Size) {
	changed, stop := sizeChanges()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if now := sizeOf(fd); now != last {
			last = now
			select {
			case to <- now:
			case <-ctx.Done():
				return
			}
		}
	}
}
