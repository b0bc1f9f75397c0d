//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/store/hub"
)

func newHubCommand(a *app) *cobra.Command {
	return group("hub", "List and describe snapshots in registries, and make keys", newHubLsCommand(a),
		newHubInspectCommand(a), newHubKeyCommand(a))
}

// listed is a snapshot in a registry.
type listed struct {
	Tag     string `json:"tag"` // of the repository
	Digest  string `json:"digest"`
	Was     string `json:"snapshot"` // its tag where it was made
	Created string `json:"created"`
	Bytes   int64  `json:"bytes"`
}

// maxListed limits the manifests that one list reads.
const maxListed = 200

func newHubLsCommand(a *app) *cobra.Command {
	h := hubs{app: a}
	cmd := &cobra.Command{
		Use:     "ls REPO",
		Aliases: []string{"list"},
		Short:   "List the snapshots of a repository",
		Long:    "List the snapshots of a repository, HOST/REPOSITORY. Tags of other artifacts are left out.",
		Example: "  forkd hub ls registry.example.com/team/pyagent",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return hubError(h.list(cmd.Context(), args[0]))
		},
	}
	h.addFlags(cmd)
	return cmd
}

func (a *hubs) list(ctx context.Context, name string) error {
	repo, cache, err := a.open(ctx, name)
	if err != nil {
		return err
	}
	defer cache.Close()
	tags, err := repo.Tags(ctx)
	if err != nil {
		return err
	}
	if len(tags) > maxListed {
		a.app.Note("%d tags, the first %d are read", len(tags), maxListed)
		tags = tags[:maxListed]
	}
	all := []listed{}
	for _, tag := range tags {
		_, digest, of, err := artifact(ctx, repo.At(tag))
		if errors.Is(err, hub.ErrInvalid) || errors.Is(err, ociimage.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		all = append(all, listed{tag, digest, of.Annotations[hub.TitleKey], of.Annotations[hub.CreatedKey], of.Bytes()})
	}
	if a.app.JSON {
		return a.app.Value(all)
	}
	var rows [][]string
	for _, l := range all {
		age := ""
		if at, err := time.Parse(time.RFC3339, l.Created); err == nil {
			age = ui.Age(at, time.Now())
		}
		rows = append(rows, []string{l.Tag, l.Digest[:len("sha256:")+12], ui.Bytes(l.Bytes), age, l.Was})
	}
	return a.app.Table([]string{"TAG", "DIGEST", "SIZE", "AGE", "SNAPSHOT"}, rows)
}
