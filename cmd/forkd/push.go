//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/registries"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/images/signed"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/signature"
)

func newPushCommand(a *app) *cobra.Command {
	h := hubs{app: a}
	var key string
	cmd := &cobra.Command{
		Use:   "push TAG REF",
		Short: "Send a snapshot to a registry",
		Long: "Send a snapshot to an OCI registry: HOST/REPOSITORY:TAG. Only blobs that the repository lacks are\n" +
			"uploaded. Everyone who can read the repository can read the snapshot's memory and disks, also\n" +
			"the content of its volumes. Credentials come from docker login, podman login and their helpers.\n" +
			registries.Variable + " lists hosts without TLS.\n\n" +
			"With --sign-key the snapshot is signed as cosign does. The key's password is asked for in a\n" +
			"terminal, or read from " + passwordVariable + " or COSIGN_PASSWORD.",
		Example: "  forkd push pyagent registry.example.com/team/pyagent:v1\n" +
			"  forkd push pyagent registry.example.com/team/pyagent:v1 --sign-key team.key",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			return hubError(h.push(ctx, c, args[0], args[1], key))
		}),
	}
	cmd.Flags().StringVar(&key, "sign-key", "", "sign the snapshot with the private key in `FILE`")
	h.addFlags(cmd)
	return cmd
}

func (a *hubs) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.plain, "plain-http", false, "the registry has no TLS")
}

// pushed is the result of a push.
type pushed struct {
	Ref    string `json:"ref"`
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"`
	Signed bool   `json:"signed"`
	// Volumes are those whose content the snapshot contains.
	Volumes []api.SnapshotVolume `json:"volumes,omitempty"`
}

func (a *hubs) push(ctx context.Context, c *client.Client, tag, ref, keyFile string) error {
	key, err := a.signKey(keyFile)
	if err != nil {
		return err
	}
	repo, cache, err := a.open(ctx, ref)
	if err != nil {
		return err
	}
	defer cache.Close()
	up, err := repo.Push(ctx)
	if err != nil {
		return err
	}
	from, err := c.Snapshot(ctx, tag)
	if err != nil {
		return err
	}
	stream, err := c.ExportSnapshot(ctx, tag)
	if err != nil {
		return err
	}
	defer stream.Close()
	meter := a.app.Meter("push", portion)
	raw, of, err := hub.ReadExport(&counted{stream, meter.Add}, func(d hub.Descriptor, r io.Reader) error {
		return upload(up, d, r, cache.Temp())
	})
	meter.End()
	if err != nil {
		return fmt.Errorf("push snapshot %s: %w", tag, err)
	}
	if err := up.Manifest(raw, hub.ManifestType); err != nil {
		return err
	}
	d := signature.Describe(hub.ManifestType, raw)
	if key != nil {
		if err := signed.Attach(ctx, repo, key, d); err != nil {
			return fmt.Errorf("sign %s, which is pushed: %w", repo.Name, err)
		}
	}
	out := pushed{Ref: repo.Name, Digest: d.Digest, Bytes: of.Bytes(), Signed: key != nil, Volumes: from.Volumes}
	if a.app.JSON {
		return a.app.Value(out)
	}
	a.app.Note("snapshot %s is %s, %s", tag, repo.Name, ui.Bytes(out.Bytes))
	noteContained(a.app, tag, out.Volumes)
	return a.app.Line("%s", out.Digest)
}

// upload keeps a blob in an unnamed file, because an upload may have to begin again.
func upload(up *ociimage.Push, d hub.Descriptor, r io.Reader, dir string) error {
	f, err := os.CreateTemp(dir, "push-")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, h), r); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != d.Hex() {
		return fmt.Errorf("%w: the daemon sent a blob with the digest sha256:%s, not %s", hub.ErrInvalid, got, d.Digest)
	}
	return up.Blob(descriptor(d), func() io.Reader { return io.NewSectionReader(f, 0, d.Size) })
}
