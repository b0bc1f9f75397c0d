package netnative

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Config holds the parameters of the measurement.
type Config struct {
	Program  string // path of forkd-net
	Connects int    // connections per way
	BulkMiB  int    // carried in each direction, in each round
	Verdicts int    // of each kind
	Flows    []int  // numbers of flows to cut
	VMs      []int  // numbers of VMs to bind in one call; the last is also used for memory
	Rounds   int
	Say      func(string) `json:"-"`
}

// Default returns the default amount of measurements.
func Default() Config {
	return Config{Connects: 1000, BulkMiB: 512, Verdicts: 100000, Flows: []int{100, 1000}, VMs: []int{64, 1000}, Rounds: 5}
}

// world is the shared state of the measurements.
type world struct {
	Config
	host     *space // of the process
	internet *space
	services *services
}

// Run measures. It must be called once, in a process with a separate network namespace.
func Run(ctx context.Context, c Config) (all []Figure, err error) {
	w := world{Config: c}
	if w.host, err = newSpace(false); err != nil {
		return nil, err
	}
	defer w.host.close()
	if w.internet, err = newInternet(); err != nil {
		return nil, err
	}
	defer w.internet.close()
	if w.services, err = serve(w.internet); err != nil {
		return nil, err
	}
	defer w.services.close()
	for _, part := range []struct {
		what    string
		measure func(context.Context) ([]Figure, error)
	}{
		{"connecting", w.connects}, {"carrying bytes", w.bulk},
		{"verdicts", func(context.Context) ([]Figure, error) { return w.verdicts() }},
		{"cutting flows", w.cuts}, {"attaching", w.attaches}, {"memory", w.memory},
	} {
		c.Say("network: " + part.what)
		figures, err := part.measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
		all = append(all, figures...)
	}
	return all, nil
}

// Here runs this program's command in separate network namespaces. The command calls Run and prints
// the figures as JSON.
func Here(ctx context.Context, c Config, command ...string) ([]Figure, error) {
	asked, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = append([]string{os.Args[0]}, append(command, string(asked))...) // a test binary goes by its name
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }      // the command ends its forkd-net
	cmd.Stderr = lines(c.Say)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("measure the network in a namespace of its own: %w", err)
	}
	var all []Figure
	return all, json.Unmarshal(out, &all)
}

// lines is a writer. It calls the function for each line.
type lines func(string)

func (l lines) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		l(strings.TrimSpace(line))
	}
	return len(b), nil
}
