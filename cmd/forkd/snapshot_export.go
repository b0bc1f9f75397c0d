//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/store/hub"
)

func newSnapshotExportCommand(a *app) *cobra.Command {
	h := hubs{app: a}
	return &cobra.Command{
		Use:   "export TAG FILE",
		Short: "Write a snapshot to a file",
		Long: "Write a snapshot to a file, an OCI layout in a tar, for hosts without a network. Everyone who can\n" +
			"read the file can read the snapshot's memory and disks, also the content of its volumes.",
		Example:           "  forkd snapshot export pyagent pyagent.tar",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			return hubError(h.export(ctx, c, args[0], args[1]))
		}),
	}
}

// exported is the result of an export.
type exported struct {
	Tag     string               `json:"tag"`
	File    string               `json:"file"`
	Bytes   int64                `json:"bytes"`
	Volumes []api.SnapshotVolume `json:"volumes,omitempty"` // whose content is in the file
}

// export writes a file that gets its name when it is complete.
func (a *hubs) export(ctx context.Context, c *client.Client, tag, path string) (err error) {
	from, err := c.Snapshot(ctx, tag)
	if err != nil {
		return err
	}
	stream, err := c.ExportSnapshot(ctx, tag)
	if err != nil {
		return err
	}
	defer stream.Close()
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	meter := a.app.Meter("export", portion)
	defer meter.End()
	whole := io.TeeReader(&counted{stream, meter.Add}, f)
	_, of, err := hub.ReadExport(whole, func(_ hub.Descriptor, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	if err == nil {
		_, err = io.Copy(io.Discard, whole) // the end of the tar
	}
	if err != nil {
		return fmt.Errorf("export snapshot %s: %w", tag, err)
	}
	if err := errors.Join(f.Sync(), os.Rename(f.Name(), path)); err != nil {
		return err
	}
	meter.End()
	if a.app.JSON {
		return a.app.Value(exported{tag, path, of.Bytes(), from.Volumes})
	}
	a.app.Note("snapshot %s is in %s, %s", tag, path, ui.Bytes(of.Bytes()))
	noteContained(a.app, tag, from.Volumes)
	return nil
}
