package floor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/usage"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/machine/appliance"
	"github.com/forkd/forkd/internal/sys/diskbench"
)

// Floors measures floors on the host of the VMs. The zero value is for a daemon on an unknown host:
// it cannot measure.
type Floors struct {
	// Run runs `forkd-bench floor ARG...` on the host and returns the output. It is nil if the host
	// is unknown.
	Run func(ctx context.Context, args ...string) ([]byte, error)
}

// ErrNoHost is returned by a Floors value without a host.
var ErrNoHost = errors.New("the daemon was named by its URL, and may be on another host")

// Known reports whether floors can be measured.
func (f Floors) Known() bool { return f.Run != nil }

// VMs calls OverFile on the host and returns milliseconds.
func (f Floors) VMs(ctx context.Context, dir string, n, memoryMiB int) (float64, error) {
	var out Took
	err := f.ask(ctx, &out, "vms", "--dir", dir, "--count", strconv.Itoa(n), "--memory-mib", strconv.Itoa(memoryMiB))
	return out.WallMS, err
}

// Copy calls Copy on the host and returns milliseconds.
func (f Floors) Copy(ctx context.Context, bytes int64) (float64, error) {
	var out Took
	err := f.ask(ctx, &out, "copy", "--bytes", strconv.FormatInt(bytes, 10))
	return out.WallMS, err
}

// Disk measures the file system of a directory.
func (f Floors) Disk(ctx context.Context, c diskbench.Config) (out diskbench.Figures, err error) {
	err = f.ask(ctx, &out, "disk", "--dir", c.Dir, "--mib", strconv.Itoa(c.MiB), "--ops", strconv.Itoa(c.RandomOps))
	return out, err
}

// Host calls ReadHost on the host.
func (f Floors) Host(ctx context.Context) (out Host, err error) {
	err = f.ask(ctx, &out, "host")
	return out, err
}

// VMMs returns the usage of the host's VMMs since their start.
func (f Floors) VMMs(ctx context.Context) (out []usage.VMM, err error) {
	err = f.ask(ctx, &out, "usage")
	return out, err
}

// Took is the output of `forkd-bench floor vms` and `forkd-bench floor copy`.
type Took struct {
	WallMS float64 `json:"wall_ms"`
}

func (f Floors) ask(ctx context.Context, into any, args ...string) error {
	if f.Run == nil {
		return ErrNoHost
	}
	said, err := f.Run(ctx, append(args, "--json")...)
	if err == nil {
		err = json.Unmarshal(said, into)
	}
	if err != nil {
		return fmt.Errorf("measure the floor (%s): %w", args[0], err)
	}
	return nil
}

// Here returns Floors for this host. They measure in a separate process.
func Here() Floors {
	return Floors{Run: func(ctx context.Context, args ...string) ([]byte, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find own program: %w", err)
		}
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(ctx, self)
		cmd.Args = append([]string{os.Args[0], "floor"}, args...) // a test binary detects this mode by its name
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return nil, errors.New(cmp.Or(complaint(errs.String()), err.Error()))
		}
		return out.Bytes(), nil
	}}
}

// program is the path of this program in the machine.
const program = "/usr/bin/forkd-bench"

// Exit codes: a shell's for a missing program, and this program's for an unknown command.
const (
	noProgram = 127
	noCommand = 2
)

// InMachine returns Floors for the machine, through its agent.
func InMachine(c *agentclient.Client) Floors {
	return Floors{Run: func(ctx context.Context, args ...string) ([]byte, error) {
		var out, errs bytes.Buffer
		res, err := appliance.Run(ctx, c, appliance.Command{
			Args: append([]string{"/bin/sh", "-c", `exec "$0" floor "$@"`, program}, args...), Dir: "/", Stdout: &out, Stderr: &errs,
		})
		switch {
		case err != nil:
			return nil, err
		case res.ExitCode == noProgram:
			return nil, errors.New("the machine has no forkd-bench: `forkd machine start --restart` gives it this version's programs")
		case res.ExitCode == noCommand: // an older program in the machine; all commands come from here
			return nil, errors.New("the machine's forkd-bench is of another version: `forkd machine start --restart` gives it this one's programs")
		case res.ExitCode != 0:
			return nil, errors.New(cmp.Or(complaint(errs.String()), res.Status))
		}
		return out.Bytes(), nil
	}}
}

// complaint returns the error from the standard error of `forkd-bench floor --json`.
func complaint(said string) string {
	var e struct {
		Error string `json:"error"`
	}
	said = strings.TrimSpace(said)
	if json.Unmarshal([]byte(said), &e) == nil && e.Error != "" {
		return e.Error
	}
	return said
}
