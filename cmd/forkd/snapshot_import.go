//go:build linux

package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/store/hub"
)

func newSnapshotImportCommand(a *app) *cobra.Command {
	h := hubs{app: a}
	var tag string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a snapshot from a file of snapshot export",
		Long: "Make a snapshot from a file of snapshot export. Import files you trust: a snapshot brings its\n" +
			"programs and its network policy.",
		Example: "  forkd snapshot import pyagent.tar\n  forkd snapshot import pyagent.tar --tag py",
		Args:    cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			info, err := h.load(ctx, c, args[0], tag)
			if err != nil {
				return hubError(err)
			}
			return h.printSnapshot(info)
		}),
	}
	cmd.Flags().StringVar(&tag, "tag", "", "name the snapshot `TAG` (default: as it was where it was made)")
	return cmd
}

func (a *hubs) load(ctx context.Context, c *client.Client, path, tag string) (api.SnapshotInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return api.SnapshotInfo{}, err
	}
	defer f.Close()
	l, err := hub.OpenLayout(f)
	if err != nil {
		return api.SnapshotInfo{}, err
	}
	out := &hub.Outgoing{Raw: l.Raw, Artifact: l.Artifact, Open: l.Blob}
	return a.deliver(ctx, c, tagFor(tag, l.Artifact), out)
}
