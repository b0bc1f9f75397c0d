package testbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// The bench's directories in the appliance. They are on the data disk, so that files survive a restart and tests
// use the same file system as forkd.
const (
	root        = "/var/lib/forkd/.bench"
	binDir      = root + "/bin"
	dataDir     = root + "/data"
	fixturesDir = root + "/fixtures"
	tmpDir      = root + "/tmp"
)

// Environment of tests, read by package kvmtest.
const (
	envKVM      = "FORKD_TEST_KVM"
	envFixtures = "FORKD_TEST_FIXTURES"
	envPrefix   = "FORKD_TEST_"
)

// Exit codes that do not come from the test binary.
const (
	ExitTimeout = 124 // killed at the time limit
	ExitBroken  = 125 // the machine could not be started, or died
)

// Options of Run.
type Options struct {
	Timeout  time.Duration
	Fixtures string // a directory on the host; may be empty
	// Environ is the caller's environment. FORKD_TEST_* is passed on.
	Environ        []string
	Stdout, Stderr io.Writer
}

// Run runs a test binary in the machine and returns its exit code. It starts the machine if needed, and leaves it
// running for the next package.
func Run(ctx context.Context, m *appliance.Appliance, opt Options, binary string, args []string) int {
	code, err := run(ctx, m, opt, binary, args)
	if err != nil {
		fmt.Fprintf(opt.Stderr, "bench: %v\n", err)
		showConsole(opt.Stderr, m)
		return ExitBroken
	}
	return code
}

func run(ctx context.Context, m *appliance.Appliance, opt Options, binary string, args []string) (int, error) {
	if _, err := m.Start(ctx, appliance.StartOptions{AgentOnly: true}); err != nil {
		return 0, err
	}
	client, err := m.Agent()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	b := &run1{ctx: ctx, client: client, opt: opt}
	cmd, err := b.prepare(binary, args)
	if err != nil {
		return 0, err
	}
	res, err := appliance.Run(ctx, client, cmd)
	if err != nil {
		return 0, fmt.Errorf("run test binary: %w", err)
	}
	if res.TimedOut {
		fmt.Fprintf(opt.Stderr, "bench: killed after %s\n", opt.Timeout)
		showConsole(opt.Stderr, m)
		return ExitTimeout, nil
	}
	if res.ExitCode != 0 {
		fmt.Fprintf(opt.Stderr, "bench: test binary: %s\n", res.Status)
	}
	return res.ExitCode, nil
}

func showConsole(w io.Writer, m *appliance.Appliance) {
	fmt.Fprintf(w, "--- last lines of the machine's console\n%s\n---\n", m.ConsoleTail())
}

// run1 is one run of one test binary.
type run1 struct {
	ctx    context.Context
	client *agentclient.Client
	opt    Options
}

// prepare uploads the test's files and returns its command.
func (b *run1) prepare(binary string, args []string) (appliance.Command, error) {
	remote, err := b.uploadBinary(binary)
	if err != nil {
		return appliance.Command{}, fmt.Errorf("upload test binary: %w", err)
	}
	dir, err := b.uploadTestdata("testdata")
	if err != nil {
		return appliance.Command{}, fmt.Errorf("upload testdata: %w", err)
	}
	env := b.environment()
	if b.opt.Fixtures != "" {
		if env[envFixtures], err = b.uploadFixtures(b.opt.Fixtures); err != nil {
			return appliance.Command{}, fmt.Errorf("upload fixtures: %w", err)
		}
	}
	return appliance.Command{
		Args: append([]string{remote}, args...), Env: env, Dir: dir, Timeout: b.opt.Timeout,
		Stdout: b.opt.Stdout, Stderr: b.opt.Stderr,
	}, nil
}

// environment returns the variables for tests. Paths of the host are not passed on.
func (b *run1) environment() map[string]string {
	env := map[string]string{}
	for _, kv := range b.opt.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok && (strings.HasPrefix(k, envPrefix) || k == "GOTRACEBACK" || k == "GODEBUG") {
			env[k] = v
		}
	}
	delete(env, envFixtures)
	env[envKVM] = "1"
	env["TMPDIR"] = tmpDir
	env["HOME"] = "/root"
	return env
}

// shell runs a shell script in the appliance and returns its output.
func (b *run1) shell(script string, args ...string) (string, error) {
	var out, errs strings.Builder
	res, err := appliance.Run(b.ctx, b.client, appliance.Command{
		Args: append([]string{"/bin/sh", "-ec", script, "sh"}, args...), Dir: "/",
		Timeout: time.Minute, Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		return "", err
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// put uploads a file under its digest, unless it exists. size and digest are for the content. The file gets its
// name only when it is complete and synced. Otherwise a machine killed before its writes reached the disk would
// keep a damaged file forever.
func (b *run1) put(f *os.File, size int64, digest, to string) error {
	there, err := b.shell(`mkdir -p "$2"; if [ -e "$1" ]; then touch "$1"; stat -c %s "$1"; fi`, to, path.Dir(to))
	if err != nil {
		return err
	}
	if there = strings.TrimSpace(there); there == fmt.Sprint(size) {
		return nil
	}
	if there != "" {
		fmt.Fprintf(b.opt.Stderr, "bench: %s is there with %s bytes in place of %d: uploading it again\n", to, there, size)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	part := fmt.Sprintf("%s.part%d", to, os.Getpid())
	if err := appliance.Upload(b.ctx, b.client, part, f, size); err != nil {
		return errors.Join(err, b.ctx.Err())
	}
	_, err = b.shell(`sync "$1"; is=$(sha256sum "$1" | cut -c "1-${#3}")
		if [ "$is" != "$3" ]; then echo "$(stat -c %s "$1") bytes arrived, with the digest $is" >&2; rm "$1"; exit 1; fi
		chmod 755 "$1"; mv "$1" "$2"`, part, to, digest)
	return err
}
