package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newSystemCommand(a *app) *cobra.Command {
	return group("system", "Show and free the daemon's disk space", newSystemDfCommand(a), newSystemPruneCommand(a))
}

// diskUse is the use of disk space of one kind of object. Its JSON form is part of the CLI's
// contract.
type diskUse struct {
	Kind             string `json:"kind"` // images, snapshots, build snapshots, unused layers
	Count            int    `json:"count"`
	Unused           int    `json:"unused"`
	Bytes            int64  `json:"bytes"`
	ReclaimableBytes int64  `json:"reclaimable_bytes"` // by `forkd system prune`
}

// diskReport is the result of system df.
type diskReport struct {
	Use     []diskUse    `json:"use"`
	Disk    *diskSpace   `json:"disk,omitempty"`    // file system of the store
	Machine *machineDisk `json:"machine,omitempty"` // with the daemon in it
}

type diskSpace struct {
	TotalBytes int64 `json:"total_bytes"`
	FreeBytes  int64 `json:"free_bytes"` // to new objects, without the reserve
	// PromisedBytes is the most that the disks of running sandboxes may use.
	PromisedBytes int64 `json:"promised_bytes"`
}

// machineDisk is the disk of a machine. It takes UsedBytes of this host.
type machineDisk struct {
	Name       string `json:"name"`
	TotalBytes int64  `json:"total_bytes"`
	UsedBytes  int64  `json:"used_bytes"`
}

func newSystemDfCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "df",
		Short: "Show the disk space of images and snapshots",
		Long: "Show the disk space of images, snapshots, the snapshots of Dockerfile steps, and layers without a\n" +
			"snapshot. RECLAIMABLE is the part that `forkd system prune` frees. UNUSED images are the ones\n" +
			"without a snapshot; `forkd image rm` removes them.\n\n" +
			"The disks of running sandboxes count in the use of the file system. `forkd capacity` shows the\n" +
			"share promised to them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, at, err := a.daemon(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := reportDisk(cmd.Context(), c)
			if err != nil {
				return err
			}
			if at.Where == endpoint.Machine {
				r.Machine = diskOfMachine(cmd.Context(), a.flags.NameOfMachine())
			}
			return printDisk(&a.Printer, r)
		},
	}
}

func reportDisk(ctx context.Context, c *client.Client) (r diskReport, err error) {
	images, err := c.ListImages(ctx)
	if err != nil {
		return r, err
	}
	s, err := takeStock(ctx, c)
	if err != nil {
		return r, err
	}
	layers, err := c.CollectLayers(ctx, true)
	if err != nil {
		return r, err
	}
	full, err := c.Capacity(ctx)
	if err != nil {
		return r, err
	}
	unused := s.unused(0, time.Now())
	r.Use = []diskUse{useOfImages(images, s.snapshots), {Kind: "snapshots"},
		{Kind: "build snapshots", Unused: len(unused)},
		{Kind: "unused layers", Count: len(layers.Layers), Unused: len(layers.Layers), Bytes: layers.Bytes,
			ReclaimableBytes: layers.Bytes}}
	for _, info := range s.snapshots {
		use := &r.Use[1]
		if isBuild(info) {
			use = &r.Use[2]
		}
		use.Count++
		use.Bytes += info.SizeBytes
	}
	r.Use[2].ReclaimableBytes = totalSize(unused)
	for _, res := range full.Resources {
		if res.Resource == "disk" {
			r.Disk = &diskSpace{res.Total, res.Free, res.Promised}
		}
	}
	return r, nil
}

// useOfImages counts images. One without a snapshot is unused, but prune keeps it.
func useOfImages(images []api.Image, snapshots []api.SnapshotInfo) diskUse {
	use := diskUse{Kind: "images", Count: len(images)}
	for _, i := range images {
		use.Bytes += i.SizeBytes
		if !slices.ContainsFunc(snapshots, func(s api.SnapshotInfo) bool { return s.Image == i.Name }) {
			use.Unused++
		}
	}
	return use
}

func printDisk(p *ui.Printer, r diskReport) error {
	if p.JSON {
		return p.Value(r)
	}
	var rows [][]string
	for _, u := range r.Use {
		rows = append(rows, []string{u.Kind, fmt.Sprint(u.Count), fmt.Sprint(u.Unused), ui.Bytes(u.Bytes),
			ui.Bytes(u.ReclaimableBytes)})
	}
	if err := p.Table([]string{"KIND", "COUNT", "UNUSED", "SIZE", "RECLAIMABLE"}, rows); err != nil {
		return err
	}
	if d := r.Disk; d != nil {
		p.Note("file system of the store: %s, %s available; sandboxes' disks may use %s", ui.Bytes(d.TotalBytes),
			ui.Bytes(d.FreeBytes), ui.Bytes(d.PromisedBytes))
	}
	if m := r.Machine; m != nil {
		p.Note("disk of machine %s: %s, %s used on this host", m.Name, ui.Bytes(m.TotalBytes), ui.Bytes(m.UsedBytes))
	}
	return nil
}

// stock is the daemon's snapshots and sandboxes.
type stock struct {
	snapshots []api.SnapshotInfo
	used      map[string]bool // tags with sandboxes
}

func takeStock(ctx context.Context, c *client.Client) (s stock, err error) {
	s.used = map[string]bool{}
	// Sandboxes first: a new one cannot be from a snapshot the later list lacks.
	list, err := c.ListSandboxes(ctx)
	if err != nil {
		return s, err
	}
	for _, sb := range list {
		for _, tag := range []string{sb.SnapshotTag, sb.RolledBackTo, sb.PausedIn} {
			s.used[tag] = true
		}
	}
	s.snapshots, err = c.ListSnapshots(ctx)
	return s, err
}

// buildTag matches the tags of the snapshots of Dockerfile steps.
var buildTag = regexp.MustCompile(`^build-[0-9a-f]{40}$`)

func isBuild(s api.SnapshotInfo) bool { return buildTag.MatchString(s.Tag) }

// unused returns the build snapshots of at least an age without sandboxes and without other snapshots
// on top, leaves first.
func (s stock) unused(age time.Duration, now time.Time) (out []api.SnapshotInfo) {
	children := map[string]int{}
	for _, info := range s.snapshots {
		if info.ParentTag != nil {
			children[*info.ParentTag]++
		}
	}
	rest := slices.Clone(s.snapshots)
	for {
		i := slices.IndexFunc(rest, func(info api.SnapshotInfo) bool {
			return isBuild(info) && !info.Pinned && info.Status != api.SnapshotWriting && children[info.Tag] == 0 &&
				!s.used[info.Tag] && now.Sub(time.Unix(info.CreatedAtUnix, 0)) >= age
		})
		if i < 0 {
			return out
		}
		if parent := rest[i].ParentTag; parent != nil {
			children[*parent]--
		}
		out = append(out, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
}

func totalSize(list []api.SnapshotInfo) (n int64) {
	for _, info := range list {
		n += info.SizeBytes
	}
	return n
}
