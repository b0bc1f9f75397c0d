//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/registries"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/signature"
)

// hubs sends snapshots to registries and files, and gets them from there. The daemon packs and verifies; this
// program speaks to the registry, with the credentials of its user.
type hubs struct {
	app   *app
	plain bool // the registry has no TLS
}

// open finds a repository. The caller closes the cache.
func (a *hubs) open(ctx context.Context, ref string) (*ociimage.Repository, *ociimage.Cache, error) {
	paths, err := endpoint.DefaultPaths()
	if err != nil {
		return nil, nil, err
	}
	cache, err := ociimage.OpenCache(filepath.Join(paths.Cache, "blobs"))
	if err != nil {
		return nil, nil, err
	}
	p := ociimage.Pull{Ref: ref, Cache: cache, PlainHTTP: a.plain}
	if err := registries.Apply(&p); err != nil {
		return nil, nil, errors.Join(err, cache.Close())
	}
	repo, err := ociimage.OpenRepository(ctx, p)
	if err != nil {
		return nil, nil, errors.Join(err, cache.Close())
	}
	return repo, cache, nil
}

// artifact reads and checks the manifest of a snapshot.
func artifact(ctx context.Context, repo *ociimage.Repository) (raw []byte, digest string, a *hub.Artifact, err error) {
	raw, d, err := repo.Manifest(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	a, err = hub.ParseArtifact(raw)
	return raw, d.String(), a, err
}

func descriptor(d hub.Descriptor) v1.Descriptor {
	mediaType := d.MediaType
	if mediaType == "" {
		mediaType = hub.FramesType
	}
	return v1.Descriptor{
		MediaType: types.MediaType(mediaType), Digest: v1.Hash{Algorithm: "sha256", Hex: d.Hex()}, Size: d.Size,
	}
}

// hubError adds the code for the exit status.
func hubError(err error) error {
	var failed *hub.Failure
	switch {
	case errors.Is(err, hub.ErrInvalid), errors.Is(err, signature.ErrKey):
		return codedError{err, api.CodeInvalid}
	case errors.Is(err, signature.ErrRefused):
		return codedError{err, api.CodeForbidden}
	case errors.As(err, &failed):
		return codedError{err, api.CodeConflict}
	}
	return buildError(err)
}

// offer asks the daemon whether it can run a snapshot, before the layers are fetched.
func offer(ctx context.Context, c *client.Client, tag string, out *hub.Outgoing) error {
	return streamed(out, true, func(r io.Reader) error { return c.CheckSnapshot(ctx, tag, r) })
}

// deliver sends a snapshot to the daemon.
func (a *hubs) deliver(ctx context.Context, c *client.Client, tag string,
	out *hub.Outgoing) (info api.SnapshotInfo, err error) {
	meter := a.app.Meter("unpack", portion)
	defer meter.End()
	meter.Total(out.Artifact.Bytes())
	err = streamed(out, false, func(r io.Reader) error {
		info, err = c.ImportSnapshot(ctx, tag, &counted{r, meter.Add})
		return err
	})
	return info, err
}

// streamed makes the stream for a daemon while send reads it. An error about the blobs comes before the daemon's,
// which is a consequence.
func streamed(out *hub.Outgoing, probe bool, send func(io.Reader) error) error {
	r, w := io.Pipe()
	made := make(chan error, 1)
	go func() {
		err := out.Write(w, probe)
		w.CloseWithError(err)
		made <- err
	}()
	sent := send(r)
	r.CloseWithError(io.ErrClosedPipe) // ends the stream if the daemon stopped reading
	if err := <-made; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return sent
}

// counted reports the bytes that it reads.
type counted struct {
	io.Reader
	add func(int64)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.add(int64(n))
	return n, err
}

// tagFor returns the tag of a snapshot to be made: as asked, or as it was where it comes from.
func tagFor(asked string, a *hub.Artifact) string {
	if asked != "" {
		return asked
	}
	return a.Annotations[hub.TitleKey]
}
