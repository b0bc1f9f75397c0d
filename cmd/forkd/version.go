package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/endpoint"
)

func newVersionCommand(a *app) *cobra.Command {
	var local bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of forkd and of a running daemon",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := struct {
				Client api.VersionInfo  `json:"client"`
				Daemon *api.VersionInfo `json:"daemon"`
			}{Client: versionInfo()}
			if !local {
				out.Daemon = a.daemonVersion(cmd)
			}
			if a.JSON {
				return a.Value(out)
			}
			if err := a.Line("forkd %s (%s, %s)", out.Client.Version, out.Client.Go, out.Client.OS); err != nil ||
				out.Daemon == nil {
				return err
			}
			return a.Line("daemon %s (api %s)", out.Daemon.Version, out.Daemon.API)
		},
	}
	cmd.Flags().BoolVar(&local, "client", false, "print the version of this program only")
	return cmd
}

// daemonVersion asks a running daemon. It does not start one.
func (a *app) daemonVersion(cmd *cobra.Command) *api.VersionInfo {
	silent := func(string) {}
	c, _, err := a.connect(cmd.Context(), endpoint.Options{Progress: silent, Notice: silent})
	if err != nil {
		return nil
	}
	defer c.Close()
	v, err := c.Version(cmd.Context())
	if err != nil {
		return nil
	}
	return &v
}

// versionInfo describes this binary.
func versionInfo() api.VersionInfo {
	v := api.VersionInfo{Version: version, API: api.Version, Go: runtime.Version(),
		OS: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	return v
}
