package identity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// A child may share its CPU with a hundred others that are made at the same time.
	defaultHookTimeout = 20 * time.Second
	// maxHooks and maxHookOutput limit the size of the answer.
	maxHooks      = 64
	maxHookOutput = 4096
)

// HookResult is the result of one hook.
type HookResult struct {
	Name     string        // file name, without the directory
	ExitCode int           // -1 if Err is set or a signal ended the hook
	Err      error         // set if the hook did not start, or was killed at its limit
	Output   string        // the last maxHookOutput bytes
	Took     time.Duration // from the start to the end of the hook
}

// Runner runs a program as root. Its variables in env override the defaults. At limit it kills the
// program and its descendants. It returns the last max bytes of output.
type Runner interface {
	RunHook(ctx context.Context, program string, env map[string]string, limit time.Duration,
		max int) (exit int, output string, err error)
}

// runHooks runs the executables in the hooks directory in lexical order. A failed hook does not
// stop the next.
func (a *Applier) runHooks(ctx context.Context, req Request) ([]HookResult, error) {
	programs, err := hooksIn(a.path(a.Hooks))
	if err != nil {
		return nil, err
	}
	limit := req.HookTimeout
	if limit <= 0 {
		limit = defaultHookTimeout
	}
	var out []HookResult
	var errs []error
	for _, p := range programs {
		began := time.Now()
		code, said, err := a.Run.RunHook(ctx, p, a.env(req), limit, maxHookOutput)
		out = append(out, HookResult{filepath.Base(p), code, err, said, time.Since(began)})
		if err == nil && code != 0 {
			err = fmt.Errorf("exit status %d", code)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("hook %s: %w", filepath.Base(p), err))
		}
	}
	return out, errors.Join(errs...)
}

func hooksIn(dir string) ([]string, error) {
	all, err := os.ReadDir(dir) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list hooks: %w", err)
	}
	var out []string
	for _, e := range all {
		p := filepath.Join(dir, e.Name())
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			out = append(out, p)
		}
	}
	if len(out) > maxHooks {
		return out[:maxHooks], nil
	}
	return out, nil
}

// renewInit makes a running init use the new identity. A machine that stays the same keeps its names.
func (a *Applier) renewInit(ctx context.Context, req Request) (bool, error) {
	if req.SameMachine || a.Renews == nil {
		return false, nil
	}
	program := a.Renews()
	if program == "" {
		return false, nil
	}
	code, said, err := a.Run.RunHook(ctx, program, a.env(req), defaultHookTimeout, maxHookOutput)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit status %d: %s", code, strings.TrimSpace(said))
	}
	return err == nil, err
}
