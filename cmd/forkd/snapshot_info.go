package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/leaf/labels"
)

func newSnapshotInfoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "info TAG",
		Aliases:           []string{"inspect"},
		Short:             "Describe a snapshot",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			s, err := c.Snapshot(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(s)
			}
			return a.describeSnapshot(s)
		}),
	}
}

func (a *app) describeSnapshot(s api.SnapshotDetail) error {
	return a.Facts(
		"tag", s.Tag,
		"status", string(s.Status),
		"warning", text(s.Warning),
		"verified", verified(s.SnapshotInfo),
		"created", time.Unix(s.CreatedAtUnix, 0).UTC().Format(time.RFC3339),
		"image", s.Image,
		"image digest", s.ImageDigest,
		"kernel", s.KernelVersion,
		"memory", onDisk(logicalSize(s), s.MemoryPhysicalBytes, s.MemoryOwnBytes),
		"disk", diskSize(s),
		"volumes", containedVolumes(s.Volumes),
		"vcpus", fmt.Sprint(s.VCPUs),
		"cpu", cpu(s.CPU),
		"machine state", ui.Bytes(s.VMStateBytes),
		"warm", strings.Join(s.Languages, ", "),
		"agent", agentOf(s.SnapshotInfo),
		"timings", timings(s.Timings),
		"ports", privatePorts(s.SnapshotInfo),
		"pinned", pinned(s.SnapshotInfo),
		"expires", expiry(s.SnapshotInfo),
		"labels", labels.Format(s.Labels),
		"directory", s.Dir,
		"content", s.ContentHash,
		"branched from", text(s.BranchedFrom),
		"pause", pauseOf(s.SnapshotInfo),
		"parent", text(s.ParentTag),
		"depth", fmt.Sprint(s.ChainDepth),
		"ancestors", strings.Join(s.Ancestors, ", "),
		"dependents", strings.Join(s.Dependents, ", "),
		"sandboxes", strings.Join(s.Sandboxes, ", "),
	)
}

// agentOf describes the agent in the guests of a snapshot. It is empty if that is unknown.
func agentOf(s api.SnapshotInfo) string {
	return agentText(s.Agent, "a fork that needs a newer one replaces it", "make the snapshot again")
}

// agentText describes an agent, with the way to a newer one. cure is for an agent that cannot be replaced.
func agentText(a *api.GuestAgent, replaced, cure string) string {
	switch {
	case a == nil:
		return ""
	case !a.Outdated:
		return a.Version
	case a.Replaceable:
		return a.Version + " (old: " + replaced + ")"
	}
	return a.Version + " (old, cannot be replaced: for newer features " + cure + ")"
}

// privatePorts is empty for a snapshot with public ports.
func privatePorts(s api.SnapshotInfo) string {
	if !s.PrivatePorts {
		return ""
	}
	return "private"
}

// onDisk describes the disk use of an image, and the part not shared with the parent.
func onDisk(logical string, physical, own int64) string {
	text := fmt.Sprintf("%s, %s on disk", logical, ui.Bytes(physical))
	if own != physical {
		text += fmt.Sprintf(", %s of its own", ui.Bytes(own))
	}
	return text
}

// diskSize is empty for a snapshot with children writing to memory only.
func diskSize(s api.SnapshotDetail) string {
	if s.DiskLogicalBytes == 0 {
		return ""
	}
	return onDisk(ui.Bytes(s.DiskLogicalBytes), s.DiskPhysicalBytes, s.DiskOwnBytes)
}

// cpu is empty for a snapshot without this information. --json prints the features.
func cpu(c *api.CPU) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s family %d model %d stepping %d, %d features",
		c.Vendor, c.Family, c.Model, c.Stepping, len(c.Features))
}

// logicalSize returns the memory of a child. An unreadable snapshot has no shape.
func logicalSize(s api.SnapshotDetail) string {
	if s.MemoryMiB > 0 {
		return fmt.Sprintf("%d MiB", s.MemoryMiB)
	}
	return ui.Bytes(s.MemoryLogicalBytes)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func timings(t api.Timings) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, name+" "+ui.Millis(t[name]))
	}
	return strings.Join(parts, ", ")
}
