//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/daemonlog"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/images/fetcher"
)

// fetchOptions are the daemon's flags for snapshots that are used before all of them is here.
type fetchOptions struct {
	timeout time.Duration
	from    []string
}

func (o *fetchOptions) addFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.timeout, "fetch-timeout", 10*time.Minute,
		"fail reads of absent content of a snapshot if its registry does not answer for `DURATION`")
	f.StringSliceVar(&o.from, "fetch-from", nil,
		"fetch from the registry `HOST` for tenants, too: parts of snapshots, and images for templates;\n"+
			"may be repeated (default: none)")
}

// configure gives the engine the process that fetches. It is this program.
func (o *fetchOptions) configure(c *engine.Config) error {
	if o.timeout <= 0 {
		return exit.UsageError{Err: fmt.Errorf("--fetch-timeout is %s, want more than 0", o.timeout)}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Join(c.RunDir, "fetch")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	layers := filepath.Join(c.StoreDir, "layers")
	c.FetchFrom = o.from
	c.Fetcher = fetcher.NewClient(dir, []string{self, "fetcher", "--dir", dir, "--root", filepath.Join(layers, "lazy"),
		"--mount", filepath.Join(layers, "served"), "--limit", o.timeout.String(),
		"--reserve", strconv.FormatInt(c.DiskReserve, 10)})
	return nil
}

// newFetcherCommand returns the process that fetches the rest of snapshots. The daemon starts it.
func newFetcherCommand(a *app) *cobra.Command {
	var c fetcher.Config
	cmd := &cobra.Command{
		Use: "fetcher", Hidden: true, Args: cobra.NoArgs,
		Short: "Fetch the rest of snapshots; started by the daemon",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := daemonlog.New(a.Err, "info", "text")
			if err != nil {
				return err
			}
			c.Log = log
			return fetcher.Run(context.WithoutCancel(cmd.Context()), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "", "keep the socket in `DIR`")
	f.StringVar(&c.Root, "root", "", "fetch the partial files in `DIR`")
	f.StringVar(&c.Mount, "mount", "", "serve them in `DIR`")
	f.DurationVar(&c.Limit, "limit", 10*time.Minute, "fail reads after an outage of `DURATION`")
	f.Int64Var(&c.Reserve, "reserve", 0, "keep `BYTES` of the disk free")
	return cmd
}
