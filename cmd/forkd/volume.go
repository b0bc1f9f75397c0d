package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newVolumeCommand(a *app) *cobra.Command {
	cmd := group("volume", "Make, list and remove volumes for sandboxes", newVolumeCreateCommand(a), newVolumeLsCommand(a),
		newVolumeInspectCommand(a), newVolumeSnapshotCommand(a), newVolumeRmCommand(a))
	cmd.Aliases = []string{"volumes"}
	return cmd
}

func newVolumeCreateCommand(a *app) *cobra.Command {
	var req api.CreateVolumeRequest
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a volume",
		Long: "Make a volume, a disk with an empty file system. Its space on the host grows as it is written.\n" +
			"With --from it has the content of another volume, and shares the other's files until one of them\n" +
			"is written.",
		Example: "  forkd volume create data --size-mib 20480\n  forkd volume create copy --from data",
		Args:    cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			req.Name = args[0]
			v, err := c.Volumes().Create(ctx, req)
			return madeVolume(a, v, err)
		}),
	}
	f := cmd.Flags()
	f.Int64Var(&req.SizeMiB, "size-mib", 0, "make a disk of `N` MiB (default: 10240, or the size of --from)")
	f.StringVar(&req.From, "from", "", "clone volume `NAME`; no sandbox may have it as private")
	return cmd
}

// madeVolume prints a new volume.
func madeVolume(a *app, v api.Volume, err error) error {
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Value(v)
	}
	a.Note("volume %s has %d MiB", v.Name, v.SizeMiB)
	return nil
}

func newVolumeLsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the volumes",
		Args:    cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.Volumes().List(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			var rows [][]string
			for _, v := range list {
				rows = append(rows, []string{v.Name, fmt.Sprintf("%d MiB", v.SizeMiB), ui.Bytes(v.StoredBytes), volumeUse(v),
					ui.Age(time.Unix(v.CreatedUnix, 0), time.Now())})
			}
			return a.Table([]string{"NAME", "SIZE", "STORED", "SANDBOX", "AGE"}, rows)
		}),
	}
}

// volumeUse returns who can write to a volume.
func volumeUse(v api.Volume) string {
	switch {
	case v.ReadOnly:
		return "read-only"
	case v.Sandbox == "":
		return "-"
	}
	return v.Sandbox
}

func newVolumeInspectCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show a volume",
		Args:  cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			v, err := c.Volumes().Get(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(v)
			}
			facts := []string{"name", v.Name, "id", v.ID, "size", fmt.Sprintf("%d MiB", v.SizeMiB),
				"stored", ui.Bytes(v.StoredBytes), "sandbox", volumeUse(v)}
			if v.From != "" {
				facts = append(facts, "from", v.From)
			}
			return a.Facts(facts...)
		}),
	}
}

func newVolumeSnapshotCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot NAME SNAPSHOT",
		Short: "Keep the present content of a volume as another one, which cannot be written",
		Long: "Keep the present content of a volume as another one, which cannot be written. The volume must be\n" +
			"in no sandbox as private. Forks use the snapshot with the mode clone or share-ro, and\n" +
			"`forkd volume create --from` makes a volume of it.",
		Args: cobra.ExactArgs(2),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			v, err := c.Volumes().Snapshot(ctx, args[0], args[1])
			return madeVolume(a, v, err)
		}),
	}
}

func newVolumeRmCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove volumes",
		Long:    "Remove volumes with their content. Clones of a volume keep theirs.",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			for _, name := range args {
				if err := c.Volumes().Remove(ctx, name); err != nil {
					return err
				}
				a.Note("volume %s is removed", name)
			}
			if a.JSON {
				return a.Value(args)
			}
			return nil
		}),
	}
}

// volumeFlags are the flags of commands that give volumes to sandboxes.
type volumeFlags struct {
	mounts []string
	mode   string
}

func (v *volumeFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&v.mounts, "volume", nil, "mount a volume, `NAME:/path[:ro]`; may be repeated")
	f.StringVar(&v.mode, "volume-mode", "", "use the volumes in `MODE`: private to one child, clone for each, share-ro, "+
		"or move from a paused sandbox (default: private)")
}

// list returns the volumes of a request.
func (v *volumeFlags) list() (out []api.VolumeMount, err error) {
	if v.mode != "" && len(v.mounts) == 0 {
		return nil, exit.UsageError{Err: errors.New("--volume-mode without --volume")}
	}
	for _, text := range v.mounts {
		name, path, ok := strings.Cut(text, ":")
		path, ro := strings.CutSuffix(path, ":ro")
		if !ok || name == "" || path == "" || strings.Contains(path, ":") {
			return nil, exit.UsageError{Err: fmt.Errorf("volume %q: want NAME:/path or NAME:/path:ro", text)}
		}
		if strings.ContainsAny(name, "/~") || name[0] == '.' {
			return nil, exit.UsageError{Err: fmt.Errorf("volume %q: %s", text, noHostDirectories)}
		}
		out = append(out, api.VolumeMount{Name: name, Path: path, Mode: api.VolumeMode(v.mode), ReadOnly: ro})
	}
	return out, nil
}

// containedVolumes lists the volumes of a snapshot. Their names may be another daemon's.
func containedVolumes(all []api.SnapshotVolume) string {
	var out []string
	for _, v := range all {
		out = append(out, fmt.Sprintf("%s on %s, %d MiB", v.Name, v.Path, v.SizeMiB))
	}
	return strings.Join(out, "; ")
}

// noteContained names the volumes whose content others get with a snapshot.
func noteContained(a *app, tag string, all []api.SnapshotVolume) {
	if len(all) > 0 {
		a.Note("snapshot %s contains the content of these volumes: %s", tag, containedVolumes(all))
	}
}
