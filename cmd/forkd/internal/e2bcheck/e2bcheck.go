// Package e2bcheck tests a daemon with E2B's clients: with the packages installed here, and with
// its own requests. It owns the test programs. The caller, `forkd e2b check`, finds the daemon and
// prints the results. The trap: it tests the package a program in the working directory would find,
// to allow tests of a virtual environment or a project.
package e2bcheck

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/forkd/forkd/cmd/internal/e2bwire"
)

//go:embed check.py
var python string

//go:embed check.mjs
var node string

// Options name the daemon and the template.
type Options struct {
	// Key is the API key. API and Sandbox are URLs: of the control API, and of requests to
	// sandboxes. Template names the template of the test's sandbox.
	Key, API, Sandbox, Template string
}

// Result is the result of one client.
type Result struct {
	Client    string  `json:"client"`            // python, node or wire
	Installed bool    `json:"installed"`         // the package was found; always true for wire
	Version   string  `json:"version,omitempty"` // of the package
	OK        bool    `json:"ok"`                // the whole test succeeded
	Error     string  `json:"error,omitempty"`   // last line of the error; empty if OK
	TookMS    float64 `json:"took_ms,omitempty"` // duration of the test; 0 if not installed
}

// limit is the time for one client. Its first create may boot the template.
const limit = 5 * time.Minute

// missing is the exit code of a program if the package is not installed.
const missing = 77

// Run tests all clients, one after the other.
func Run(ctx context.Context, o Options) []Result {
	return []Result{
		program(ctx, o, "python", "python3", "-c", python),
		program(ctx, o, "node", "node", "--input-type=module", "-e", node),
		wire(ctx, o),
	}
}

// program tests one package. The last line of its output is the version.
func program(ctx context.Context, o Options, client, name string, args ...string) Result {
	r := Result{Client: client}
	path, err := exec.LookPath(name)
	if err != nil {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "E2B_API_KEY="+o.Key, "E2B_API_URL="+o.API, "E2B_SANDBOX_URL="+o.Sandbox,
		"E2B_DEBUG=false", "FORKD_TEMPLATE="+o.Template)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == missing {
		return r
	}
	r.Installed, r.OK, r.TookMS = true, err == nil, millis(began)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	r.Version = lines[len(lines)-1]
	if err != nil {
		said := strings.Split(strings.TrimSpace(errs.String()), "\n")
		r.Error = cmp.Or(strings.TrimSpace(said[len(said)-1]), err.Error())
	}
	return r
}

// wire makes the same test without a package.
func wire(ctx context.Context, o Options) Result {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := overWire(ctx, o)
	r := Result{Client: "wire", Installed: true, OK: err == nil, TookMS: millis(began)}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

func overWire(ctx context.Context, o Options) (err error) {
	c := &e2bwire.Client{URL: o.API, Key: o.Key, HTTP: http.DefaultClient}
	s, err := c.Create(ctx, o.Template, 120)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, c.Kill(context.WithoutCancel(ctx), s)) }()
	said, err := c.Run(ctx, s, "echo $((40+2))")
	if err == nil && strings.TrimSpace(said) != "42" {
		err = fmt.Errorf("a command says %q, want 42", said)
	}
	return cmp.Or(err, c.Info(ctx, s))
}

func millis(began time.Time) float64 { return float64(time.Since(began).Microseconds()) / 1000 }
