//go:build linux

package main

import (
	"context"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/registries"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/store/hub"
)

func newPullCommand(a *app) *cobra.Command {
	h := hubs{app: a}
	var tag, key string
	var lazy bool
	cmd := &cobra.Command{
		Use:   "pull REF",
		Short: "Get a snapshot from a registry",
		Long: "Get a snapshot from an OCI registry: HOST/REPOSITORY:TAG, or @DIGEST instead of the tag. A snapshot\n" +
			"that this host's CPU cannot run is refused before its layers are fetched. An interrupted download\n" +
			"continues. Pull from repositories you trust: a snapshot brings its programs and its network policy.\n" +
			"With --require-signature a snapshot without a signature of that key is refused before it is read.\n" +
			"`forkd image pull` makes images of container images. " + registries.Variable + " lists hosts without TLS;\n" +
			"~/.config/forkd/registries.yaml names them too, and mirrors.",
		Example: "  forkd pull registry.example.com/team/pyagent:v1\n" +
			"  forkd pull registry.example.com/team/pyagent:v1 --tag py\n" +
			"  forkd pull registry.example.com/team/pyagent:v1 --require-signature team.pub",
		Args: cobra.ExactArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			info, err := h.pull(ctx, c, args[0], pullOptions{tag: tag, key: key, lazy: lazy})
			if err != nil {
				return hubError(err)
			}
			return h.printSnapshot(info)
		}),
	}
	cmd.Flags().StringVar(&tag, "tag", "", "name the snapshot `TAG` (default: as it was where it was made)")
	cmd.Flags().StringVar(&key, "require-signature", "", "require a signature of the public key in `FILE`")
	cmd.Flags().BoolVar(&lazy, "lazy", false,
		"return when forks can begin; the daemon fetches the rest itself, with your credentials for the registry")
	h.addFlags(cmd)
	return cmd
}

// pullOptions are the flags of a pull.
type pullOptions struct {
	tag  string // of the new snapshot; empty: as it was where it was made
	key  string // file of the key that must have signed it; empty: none
	lazy bool   // only what a fork needs to begin
}

func (a *hubs) pull(ctx context.Context, c *client.Client, ref string, o pullOptions) (api.SnapshotInfo, error) {
	key, err := requiredKey(o.key)
	if err != nil {
		return api.SnapshotInfo{}, err
	}
	repo, cache, err := a.open(ctx, ref)
	if err != nil {
		return api.SnapshotInfo{}, err
	}
	defer cache.Close()
	raw, digest, of, err := artifact(ctx, repo)
	if err != nil {
		return api.SnapshotInfo{}, err
	}
	signatures, err := a.signatures(ctx, repo, digest, key)
	if err != nil {
		return api.SnapshotInfo{}, err
	}
	tag := tagFor(o.tag, of)
	out := &hub.Outgoing{Raw: raw, Artifact: of, Signatures: signatures,
		Open: func(d hub.Descriptor) (io.ReadCloser, error) { return repo.Open(descriptor(d)) }}
	meter := a.app.Meter("pull", portion)
	defer meter.End()
	fetch := func(some []hub.Descriptor) error {
		blobs := make([]v1.Descriptor, len(some))
		for i, d := range some {
			blobs[i] = descriptor(d)
		}
		return repo.Fetch(ctx, blobs, meter.Set)
	}
	if err := fetch(of.Blobs()[:min(3, 1+len(of.Layers))]); err != nil { // configuration and state
		return api.SnapshotInfo{}, err
	}
	if err := offer(ctx, c, tag, out); err != nil {
		return api.SnapshotInfo{}, err
	}
	blobs := of.Blobs()
	if o.lazy {
		if blobs, err = of.Early(); err != nil {
			return api.SnapshotInfo{}, err
		}
		if out.Source, err = a.source(ctx, ref, repo, digest); err != nil {
			return api.SnapshotInfo{}, err
		}
	}
	if err := fetch(blobs); err != nil {
		return api.SnapshotInfo{}, err
	}
	meter.End()
	return a.deliver(ctx, c, tag, out)
}

func (a *hubs) printSnapshot(info api.SnapshotInfo) error {
	if a.app.JSON {
		return a.app.Value(info)
	}
	if info.FetchBytes > 0 {
		a.app.Note("snapshot %s, %s of %s are here, the rest follows", info.Tag, ui.Bytes(info.FetchedBytes),
			ui.Bytes(info.FetchBytes))
		return a.app.Line("%s", info.Tag)
	}
	a.app.Note("snapshot %s, %s on disk", info.Tag, ui.Bytes(info.SizeBytes))
	return a.app.Line("%s", info.Tag)
}
