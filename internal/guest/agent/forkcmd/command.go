package forkcmd

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/tokencall"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/guest/agentproto/tokenwire"
)

// Exit codes of the commands, documented in docs/use/guest-fork.md.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitDenied     = 3   // not allowed, or over a limit
	exitBusy       = 4   // too much in progress
	exitInterrupt  = 5   // another fork came first
	exitNoChildren = 10  // no children to wait for
	exitPartial    = 11  // some children could not be made, or did not exit with 0
	exitTimeout    = 124 // as in timeout(1)
)

// command is one run of one of the commands.
type command struct {
	socket         string // for forks
	tokens         string // socket for identity tokens
	stdin          *os.File
	stdout, stderr io.Writer
}

// Run runs the command with the given name. It returns false if the name is not one of the
// commands.
func Run(name string, args []string) (exit int, known bool) {
	c := command{socket: defaultSocket, tokens: tokencall.Socket, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	return c.run(filepath.Base(name), args)
}

func (c command) run(name string, args []string) (exit int, known bool) {
	var do func([]string) (int, error)
	switch name {
	case forkName:
		do = c.fork
	case waitName:
		do = c.wait
	case exitName:
		do = c.exit
	case tokenName:
		do = c.token
	default:
		return 0, false
	}
	code, err := do(args)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK, true
	}
	if err != nil {
		fmt.Fprintf(c.stderr, "%s: %v\n", name, err)
		return exitOf(err), true
	}
	return code, true
}

// Names of the commands.
const (
	forkName = "forkd-fork"
	waitName = "forkd-wait"
	exitName = "forkd-exit"
)

type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func exitOf(err error) int {
	var e *forkwire.Error
	var t *tokenwire.Error
	switch {
	case errors.As(err, &t):
		return exitOfToken(t)
	case errors.As(err, new(usageError)):
		return exitUsage
	case !errors.As(err, &e):
		return exitFailed
	}
	switch e.Code {
	case forkwire.Invalid:
		return exitUsage
	case forkwire.Denied, forkwire.Limit:
		return exitDenied
	case forkwire.Busy:
		return exitBusy
	case forkwire.Interrupted:
		return exitInterrupt
	case forkwire.NoChildren:
		return exitNoChildren
	case forkwire.TimedOut:
		return exitTimeout
	}
	return exitFailed
}

// parse accepts flags before, between and after the arguments.
func (c command) parse(fs *flag.FlagSet, usage string, args []string) ([]string, error) {
	fs.SetOutput(c.stderr)
	fs.Usage = func() {
		fmt.Fprintf(c.stderr, "usage: %s\n", usage)
		fs.PrintDefaults()
	}
	var rest []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, usageError{err}
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
}

func (c command) fork(args []string) (int, error) {
	fs := flag.NewFlagSet(forkName, flag.ContinueOnError)
	asJSON := fs.Bool("json", false, "print one JSON object")
	rest, err := c.parse(fs, forkName+" N [--json]", args)
	if err != nil {
		return 0, err
	}
	if len(rest) != 1 {
		return 0, usagef("want one argument, the number of children")
	}
	n, err := strconv.Atoi(rest[0])
	if err != nil || n < 1 || n > forkwire.MaxChildren {
		return 0, usagef("the number of children is %q, want 1 to %d", rest[0], forkwire.MaxChildren)
	}
	a, err := c.call(forkwire.Request{Op: forkwire.OpFork, N: n}, nil, nil)
	if err != nil {
		return 0, err
	}
	return c.forked(a, *asJSON)
}

// forked prints the index of this VM, and in the original also the children.
func (c command) forked(a forkwire.Answer, asJSON bool) (int, error) {
	code := exitOK
	for _, child := range a.Children {
		if child.Error != "" {
			code = exitPartial
		}
	}
	if asJSON {
		return code, json.NewEncoder(c.stdout).Encode(forkedJSON{a.Index, a.ID, a.Parent, a.Children})
	}
	fmt.Fprintln(c.stdout, a.Index)
	for _, child := range a.Children {
		if child.Error != "" {
			fmt.Fprintf(c.stderr, "%s: child %d could not be made: %s\n", forkName, child.Index, child.Error)
			continue
		}
		fmt.Fprintln(c.stdout, child.ID)
	}
	return code, nil
}

// forkedJSON is the output of --json.
type forkedJSON struct {
	Index    int              `json:"index"`
	ID       string           `json:"id,omitempty"`
	Parent   string           `json:"parent,omitempty"`
	Children []forkwire.Child `json:"children,omitempty"`
}

func (c command) exit(args []string) (int, error) {
	fs := flag.NewFlagSet(exitName, flag.ContinueOnError)
	none := fs.Bool("no-result", false, "leave no result, whatever standard input is")
	rest, err := c.parse(fs, exitName+" CODE [--no-result] [< RESULT]", args)
	if err != nil {
		return 0, err
	}
	if len(rest) != 1 {
		return 0, usagef("want one argument, the exit code")
	}
	code, err := strconv.Atoi(rest[0])
	if err != nil || code < 0 || code > 255 {
		return 0, usagef("the exit code is %q, want 0 to 255", rest[0])
	}
	var result []byte
	if !*none {
		if result, err = readResult(c.stdin); err != nil {
			return 0, err
		}
	}
	if _, err := c.call(forkwire.Request{Op: forkwire.OpExit, Code: code}, result, nil); err != nil {
		return 0, err
	}
	time.Sleep(time.Minute) // the VM ends before this returns
	return code, nil
}

// readResult reads a file or a pipe. A terminal or /dev/null means no result.
func readResult(in *os.File) ([]byte, error) {
	st, err := in.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice != 0 {
		return nil, nil // standard input is closed, or a terminal or device
	}
	b, err := io.ReadAll(io.LimitReader(in, forkwire.MaxResult+1))
	if err != nil {
		return nil, fmt.Errorf("read the result: %w", err)
	}
	if len(b) > forkwire.MaxResult {
		return nil, usagef("the result is larger than %d bytes", forkwire.MaxResult)
	}
	return b, nil
}
