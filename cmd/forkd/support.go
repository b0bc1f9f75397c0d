package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd/internal/support"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/hints"
)

// configFile is the operator's configuration.
const configFile = "/etc/forkd/config.yaml"

// recentReceipts is the number of receipts in a bundle.
const recentReceipts = 200

// supportBundle is the result of the command. Its JSON form is part of the CLI's contract.
type supportBundle struct {
	File   string          `json:"file"`
	Bytes  int64           `json:"bytes"`
	Files  []support.Entry `json:"files"`
	Errors []string        `json:"errors"` // of parts that are missing, as in errors.txt
}

func newSupportCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "support",
		Short: "Write a bundle for a bug report, without secrets",
		Long: "Write a tar.gz file for a bug report: versions, checks of this host, the state of the daemon and its\n" +
			"sandboxes, metrics, and the last lines of logs. The command works without a daemon, and starts\n" +
			"neither a daemon nor a machine.\n\n" +
			"Secrets, guest environments, program arguments and file contents are left out or replaced by\n" +
			"[removed]. The names of sandboxes, snapshots and tenants are kept. Read the files before you send\n" +
			"them. A missing part is a line in errors.txt.",
		Example: "  forkd support\n  forkd support -o bundle.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			path := cmp.Or(file, "forkd-support-"+now.UTC().Format("20060102-150405")+".tar.gz")
			b, err := writeSupport(cmd, a, path, now)
			if err != nil {
				return err
			}
			a.Note("missing parts: %d (errors.txt); read the files before you send them", len(b.Errors))
			if a.JSON {
				return a.Value(b)
			}
			return a.Line("%s", b.File)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "",
		"write a new `FILE` (default: forkd-support-TIME.tar.gz in this directory)")
	return cmd
}

// writeSupport writes the bundle. It leaves no file after an error.
func writeSupport(cmd *cobra.Command, a *app, path string, now time.Time) (_ supportBundle, err error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return supportBundle{}, hints.With(fmt.Errorf("write the bundle: %w", err), "name another file with -o")
	}
	if err != nil {
		return supportBundle{}, fmt.Errorf("write the bundle: %w", err)
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(path)
		}
	}()
	progress := a.Progress()
	defer progress.End()
	redactor := &support.Redactor{}
	s := supportSources{app: a, cmd: cmd, redactor: redactor}
	s.connected = sync.OnceValues(func() (*client.Client, error) { return s.connect(cmd.Context()) })
	s.learn(os.Environ())
	m, err := support.Write(cmd.Context(), out, support.Options{
		Parts: s.parts(), Redactor: redactor, Version: version, Now: now,
		Began: func(part string) { progress.Step(part, -1) },
		Ended: func(part, failure string) { progress.Done(part, failure) },
	})
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		return supportBundle{}, fmt.Errorf("write the bundle: %w", err)
	}
	b := supportBundle{File: path, Files: m.Files, Errors: m.Errors}
	if st, err := os.Stat(path); err == nil {
		b.Bytes = st.Size()
	}
	if full, err := filepath.Abs(path); err == nil {
		b.File = full
	}
	return b, nil
}

// supportSources collects the parts of a bundle.
type supportSources struct {
	app       *app
	cmd       *cobra.Command
	redactor  *support.Redactor
	connected func() (*client.Client, error)
}

// learn removes the values of secret variables and flags from all texts.
func (s *supportSources) learn(environ []string) {
	for _, v := range environ {
		if name, value, _ := strings.Cut(v, "="); support.SecretName(name) {
			s.redactor.Learn(value)
		}
	}
	s.redactor.Learn(s.app.flags.Token)
}

func (s *supportSources) parts() []support.Part {
	parts := []support.Part{
		{Name: "versions", Collect: s.versions},
		{Name: "environment", Collect: s.environment},
		{Name: "configuration", Collect: func(_ context.Context, to *support.Sink) error {
			err := to.YAMLFile("config.yaml", support.Path(cmp.Or(s.app.config, configFile)))
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it is optional
			}
			return err
		}},
		{Name: "capacity", Collect: fromDaemon(s, "capacity.json", (*client.Client).Capacity)},
		{Name: "sandboxes", Collect: fromDaemon(s, "sandboxes.json", allSandboxes)},
		{Name: "snapshots", Collect: fromDaemon(s, "snapshots.json", allSnapshots)},
		{Name: "receipts", Collect: fromDaemon(s, "receipts.json", receiptsForSupport)},
		{Name: "metrics", Collect: func(ctx context.Context, to *support.Sink) error {
			c, err := s.connected()
			if err != nil {
				return err
			}
			text, err := c.Metrics(ctx)
			if err == nil {
				to.Text("metrics.txt", text)
			}
			return err
		}},
	}
	return append(parts, hostParts(s)...)
}

func allSandboxes(c *client.Client, ctx context.Context) ([]api.SandboxInfo, error) {
	return c.ListSandboxes(ctx)
}

func allSnapshots(c *client.Client, ctx context.Context) ([]api.SnapshotInfo, error) {
	return c.ListSnapshots(ctx)
}

// connect finds the daemon. It starts none.
func (s *supportSources) connect(ctx context.Context) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, support.PartTime)
	defer cancel()
	silent := func(string) {}
	c, at, err := s.app.connect(ctx, endpoint.Options{Progress: silent, Notice: silent})
	s.redactor.Learn(at.Token)
	return c, err
}

// fromDaemon returns a part with one answer of the daemon.
func fromDaemon[T any](s *supportSources, name string, ask func(*client.Client, context.Context) (T, error),
) func(context.Context, *support.Sink) error {
	return func(ctx context.Context, to *support.Sink) error {
		c, err := s.connected()
		if err != nil {
			return err
		}
		v, err := ask(c, ctx)
		if err != nil {
			return err
		}
		return to.JSON(name, v)
	}
}

// receiptsForSupport returns the newest receipts. Errors of programs in guests may end with their output, so
// those are cut after the cause.
func receiptsForSupport(c *client.Client, ctx context.Context) ([]api.Receipt, error) {
	all, err := c.ListReceipts(ctx, client.ReceiptFilter{Limit: recentReceipts})
	for i := range all {
		r := &all[i]
		if r.Op == api.ReceiptSnapshot {
			r.Error = causeOnly(r.Error)
		}
		if r.Guest == nil {
			continue
		}
		for j := range r.Guest.Hooks {
			r.Guest.Hooks[j].Error = causeOnly(r.Guest.Hooks[j].Error)
		}
		for j := range r.Guest.Interpreters {
			r.Guest.Interpreters[j].Error = causeOnly(r.Guest.Interpreters[j].Error)
		}
	}
	return all, err
}

// causeOnly returns the first two parts of an error, such as "sh: exit code 1".
func causeOnly(text string) string {
	line, _, more := strings.Cut(text, "\n")
	parts := strings.SplitN(line, ": ", 3)
	if len(parts) < 3 && !more {
		return text
	}
	return strings.Join(parts[:min(2, len(parts))], ": ") + ": " + support.Removed
}

// versions writes the versions of the programs and of the host.
func (s *supportSources) versions(ctx context.Context, to *support.Sink) error {
	v := struct {
		Client api.VersionInfo   `json:"client"`
		Daemon *api.VersionInfo  `json:"daemon"`
		CPUs   int               `json:"cpus"`
		Host   map[string]string `json:"host"`
	}{Client: versionInfo(), CPUs: runtime.NumCPU(), Host: hostVersions(ctx)}
	c, err := s.connected()
	if err == nil {
		var daemon api.VersionInfo
		if daemon, err = c.Version(ctx); err == nil {
			v.Daemon = &daemon
		}
	}
	if err != nil {
		to.Failed("daemon", err)
	}
	return to.JSON("versions.json", v)
}

// environment writes the variables of forkd.
func (s *supportSources) environment(_ context.Context, to *support.Sink) error {
	var lines []string
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "FORKD_") {
			continue
		}
		if value != "" && support.SecretName(name) {
			value = support.Removed
		}
		lines = append(lines, fmt.Sprintf("%s=%q\n", name, value))
	}
	slices.Sort(lines)
	to.Text("environment.txt", strings.Join(lines, ""))
	return nil
}
