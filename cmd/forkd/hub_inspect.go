//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/snapshot"
)

func newHubInspectCommand(a *app) *cobra.Command {
	h := hubs{app: a}
	cmd := &cobra.Command{
		Use:     "inspect REF",
		Short:   "Describe a snapshot in a registry without fetching it",
		Example: "  forkd hub inspect registry.example.com/team/pyagent:v1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return hubError(h.inspect(cmd.Context(), args[0]))
		},
	}
	h.addFlags(cmd)
	return cmd
}

// described is a snapshot in a registry.
type described struct {
	Ref      string             `json:"ref"`
	Digest   string             `json:"digest"`
	Bytes    int64              `json:"bytes"`
	Snapshot *snapshot.Manifest `json:"snapshot"`
	Blobs    []hub.Descriptor   `json:"blobs"`
}

func (a *hubs) inspect(ctx context.Context, ref string) error {
	repo, cache, err := a.open(ctx, ref)
	if err != nil {
		return err
	}
	defer cache.Close()
	_, digest, of, err := artifact(ctx, repo)
	if err != nil {
		return err
	}
	b, err := repo.Blob(ctx, descriptor(of.Config))
	if err != nil {
		return err
	}
	m, err := of.Manifest(b)
	if err != nil {
		return err
	}
	out := described{repo.Name, digest, of.Bytes(), m, of.Blobs()}
	if a.app.JSON {
		return a.app.Value(out)
	}
	cpu, net := "unknown", "none"
	if c := m.CPU; c != nil {
		cpu = fmt.Sprintf("%s family %d model %d", c.Vendor, c.Family, c.Model)
	}
	if m.Network != nil {
		net = "its own policy"
	}
	var volumes []string
	for _, d := range m.Volumes() {
		volumes = append(volumes, fmt.Sprintf("%s on %s, %d MiB", d.Volume.Name, d.Volume.Path, d.Bytes>>20))
	}
	for _, row := range [][2]string{
		{"reference", repo.Name}, {"digest", digest}, {"snapshot", m.Tag}, {"created", of.Annotations[hub.CreatedKey]},
		{"size", ui.Bytes(out.Bytes)}, {"memory", fmt.Sprintf("%d MiB", m.Shape.MemoryMiB)},
		{"vCPUs", fmt.Sprint(m.Shape.VCPUs)}, {"layers", fmt.Sprint(len(m.LayerIDs()))}, {"CPU", cpu},
		{"languages", strings.Join(m.Languages, ", ")}, {"network", net},
		{"volumes", strings.Join(volumes, "; ")},
	} {
		if err := a.app.Line("%-10s %s", row[0], ui.Clean(row[1])); err != nil {
			return err
		}
	}
	return nil
}
