// Package command builds runnable commands from requests of clients. It looks up account,
// environment, working directory and program as the guest sees them, but starts no process. It
// searches the program on the command's own PATH, not on the agent's.
package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
	"github.com/forkd/forkd/internal/guest/agent/guestpath"
	"github.com/forkd/forkd/internal/guest/agent/initns/initpid"
	"github.com/forkd/forkd/internal/leaf/environ"
)

// Spec is a client's request for a command.
type Spec struct {
	Program string            // a path, or a name to find on the command's PATH; also argument 0
	Args    []string          // arguments after Program
	Env     map[string]string // overrides the guest's defaults
	Cwd     string            // if empty, the guest's default
}

// Error is a mistake in a Spec. The caller can correct it.
type Error struct{ err error }

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// New returns a command for spec, to run as u. Its errors are *Error.
func New(spec Spec, u account.User, rec *defaults.Record) (*exec.Cmd, error) {
	dir, err := workdir(spec.Cwd, u, rec)
	if err != nil {
		return nil, &Error{err}
	}
	if err := environ.Check(spec.Env); err != nil {
		return nil, &Error{err}
	}
	if err := checkArgs(spec.Args); err != nil {
		return nil, &Error{err}
	}
	env := environment(spec.Env, u, rec)
	program, err := lookProgram(spec.Program, searchPath(env), dir)
	if err != nil {
		return nil, &Error{err}
	}
	return &exec.Cmd{
		Path: program,
		Args: append([]string{spec.Program}, spec.Args...),
		Env:  env,
		Dir:  dir,
		SysProcAttr: &syscall.SysProcAttr{
			Setsid:     true, // own process group, to kill the command with its children
			Credential: u.Credential(os.Getuid()),
		},
	}, nil
}

func workdir(cwd string, u account.User, rec *defaults.Record) (string, error) {
	dir, err := guestpath.Resolve(cwd, u.Home, rec.Workdir())
	if err != nil {
		return "", err
	}
	st, err := os.Stat(dir)
	if err == nil && st.IsDir() {
		return dir, nil
	}
	if cwd == "" {
		return "/", nil // an account without a home may still run commands
	}
	if err == nil {
		return "", fmt.Errorf("cwd '%s' is not a directory", dir)
	}
	return "", fmt.Errorf("cwd '%s' does not exist", dir)
}

// environment combines the sources of variables. Later ones win, as clients expect: path, account,
// a running init, defaults, request.
func environment(req map[string]string, u account.User, rec *defaults.Record) []string {
	env := map[string]string{"PATH": defaults.Path, "HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name}
	maps.Copy(env, initpid.Environ())
	for k, v := range rec.Env() {
		env[k] = v
	}
	for k, v := range req {
		env[k] = v
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

func searchPath(env []string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			return v
		}
	}
	return ""
}

// lookProgram finds name as a shell in dir would, on the command's own PATH and not on the agent's.
func lookProgram(name, path, dir string) (string, error) {
	if name == "" {
		return "", errors.New("no command given")
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", fmt.Errorf("command %q holds a zero byte", name)
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if err := executable(name); err != nil {
			return "", fmt.Errorf("command '%s': %w", name, err)
		}
		return name, nil
	}
	denied := false
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		full := filepath.Join(d, name)
		switch err := executable(full); {
		case err == nil:
			return full, nil
		case errors.Is(err, fs.ErrPermission):
			denied = true
		}
	}
	if denied {
		return "", fmt.Errorf("command '%s': %w", name, fs.ErrPermission)
	}
	return "", fmt.Errorf("command '%s' not found", name)
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("no such file or directory")
	case err != nil:
		return err
	case st.IsDir():
		return errors.New("is a directory")
	case st.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}
