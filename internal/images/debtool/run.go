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
	"strings"
	"syscall"
	"time"
)

// Command is one run of a tool.
type Command struct {
	// Args is the tool's name and its arguments.
	Args []string
	// Package is the Debian package that has the tool.
	Package string
	// Dir is the working directory; "" is the caller's.
	Dir string
	// Env is added to the caller's environment.
	Env []string
	// Stdin is the tool's input; nil is empty.
	Stdin io.Reader
	// OnLine is called for each line of stdout and stderr, one at a time; nil for none.
	OnLine func(line string)
}

// Runner runs a Command and returns its stdout (at most MaxOutput bytes of it).
// Run is the real one; tests put a fake in its place.
type Runner func(ctx context.Context, c Command) (stdout []byte, err error)

// MaxOutput is how much of a tool's stdout is kept, tailLines how many of its last lines stand in an error.
const (
	MaxOutput = 64 << 20
	tailLines = 15
)

// ErrMissing is wrapped by the error about a tool that is not installed.
var ErrMissing = errors.New("is not installed")

// Error is a tool that ended with a failure.
type Error struct {
	Tool string
	Err  error
	// Tail is the last lines of its output, stdout and stderr as they came.
	Tail []string
}

func (e *Error) Error() string {
	if len(e.Tail) == 0 {
		return fmt.Sprintf("run %s: %v", e.Tool, e.Err)
	}
	return fmt.Sprintf("run %s: %v; its last lines:\n  %s", e.Tool, e.Err, strings.Join(e.Tail, "\n  "))
}

func (e *Error) Unwrap() error { return e.Err }

// Run runs c to its end. When ctx ends first, the tool's process group is asked to
// stop (the tools clean up after themselves), then killed.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	g := &group{cmd: cmd}
	cmd.Cancel = func() error { return g.signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second

	lines := &lineWriter{onLine: c.OnLine}
	out := &capWriter{max: MaxOutput}
	cmd.Stdout = io.MultiWriter(out, lines.stream())
	cmd.Stderr = lines.stream()
	err = g.run(ctx)
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
	return fmt.Errorf("%s %w: run `make deps`, or apt-get install %s", tool, ErrMissing, pkg)
}

// Look reports a missing tool before any work is done.
func Look(tool, pkg string) error {
	if _, err := find(tool); err != nil {
		return missing(tool, pkg)
	}
	return nil
}

// find looks where a user's PATH often does not: Debian has mke2fs in /usr/sbin.
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
