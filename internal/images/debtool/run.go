package debtool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Command is one run of a tool.
type Command struct {
	// Args are the tool's name and its arguments.
	Args []string
	// Package is the Debian package of the tool.
	Package string
	// Dir is the working directory. If empty, it is the caller's.
	Dir string
	// Env is added to the caller's environment.
	Env []string
	// Stdin is the tool's input. If nil, the input is empty.
	Stdin io.Reader
	// OnLine is called for each line of stdout and stderr. Calls do not overlap. May be nil.
	OnLine func(line string)
}

// Runner runs a Command and returns its stdout, at most MaxOutput bytes. Run is the real implementation; tests
// use a fake.
type Runner func(ctx context.Context, c Command) (stdout []byte, err error)

// MaxOutput limits the stdout kept of a tool. tailLines is the number of its last lines in an error.
const (
	MaxOutput = 64 << 20
	tailLines = 15
)

// ErrMissing is wrapped by errors about tools that are not installed.
var ErrMissing = errors.New("is not installed")

// Error reports a tool that failed.
type Error struct {
	Tool string
	Err  error
	// Tail holds the last lines of its stdout and stderr, in order.
	Tail []string
}

func (e *Error) Error() string {
	if len(e.Tail) == 0 {
		return fmt.Sprintf("run %s: %v", e.Tool, e.Err)
	}
	return fmt.Sprintf("run %s: %v; its last lines:\n  %s", e.Tool, e.Err, strings.Join(e.Tail, "\n  "))
}

func (e *Error) Unwrap() error { return e.Err }

// Is reports a full disk, which tools report only by words.
func (e *Error) Is(target error) bool {
	return target == syscall.ENOSPC && slices.ContainsFunc(e.Tail, func(line string) bool {
		return strings.Contains(line, "No space left on device")
	})
}

// Run runs c to its end. If ctx ends first, it sends SIGTERM to the tool's process group, so that the tool can
// clean up, and later kills the group. The group also ends with this process, whatever ends it.
func Run(ctx context.Context, c Command) ([]byte, error) {
	tool := c.Args[0]
	path, err := find(tool)
	if err != nil {
		return nil, missing(tool, c.Package)
	}
	cmd := exec.CommandContext(ctx, path, c.Args[1:]...)
	cmd.Dir, cmd.Stdin = c.Dir, c.Stdin
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANG=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.Env = append(cmd.Env, c.Env...)
	g, err := newGroup()
	if err != nil {
		return nil, &Error{Tool: tool, Err: err}
	}
	cmd.Cancel = func() error { return g.signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second

	lines := &lineWriter{onLine: c.OnLine}
	out := &capWriter{max: MaxOutput}
	cmd.Stdout = io.MultiWriter(out, lines.stream())
	cmd.Stderr = lines.stream()
	err = g.run(cmd)
	lines.flush()
	if err == nil {
		return out.buf.Bytes(), nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("run %s: %w", tool, context.Cause(ctx))
	}
	return nil, &Error{Tool: tool, Err: err, Tail: lines.tail()}
}

func missing(tool, pkg string) error {
	return fmt.Errorf("%s %w: run `%s`, or apt-get install %s", tool, ErrMissing, Installer(), pkg)
}

// Look returns an error if a tool is missing, to check before starting work.
func Look(tool, pkg string) error {
	if _, err := find(tool); err != nil {
		return missing(tool, pkg)
	}
	return nil
}

// find also looks in directories often missing in a user's PATH: Debian has mke2fs in /usr/sbin.
func find(tool string) (string, error) {
	path, err := exec.LookPath(tool)
	if err == nil || filepath.Base(tool) != tool {
		return path, err
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, tool)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// capWriter keeps the first max bytes and drops the rest.
type capWriter struct {
	buf bytes.Buffer
	max int
}

func (w *capWriter) Write(p []byte) (int, error) {
	w.buf.Write(p[:min(len(p), w.max-w.buf.Len())])
	return len(p), nil
}
