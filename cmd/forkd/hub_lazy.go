//go:build linux

package main

import (
	"context"
	"os"
	"strings"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/registries"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/store/hub"
)

// source names the place of a snapshot for a daemon, with the user's mirrors and credentials.
func (a *hubs) source(ctx context.Context, ref string, repo *ociimage.Repository, digest string) (*hub.Source, error) {
	p := ociimage.Pull{Ref: ref, PlainHTTP: a.plain}
	if err := registries.Apply(&p); err != nil {
		return nil, err
	}
	logins, err := repo.Logins(ctx)
	if err != nil {
		return nil, err
	}
	s := &hub.Source{Origin: hub.Origin{Ref: repo.Base() + "@" + digest, Mirrors: p.Mirrors, PlainHTTP: p.PlainHTTP}}
	for _, l := range logins {
		s.Logins = append(s.Logins, hub.Login(l))
	}
	return s, nil
}

// pulledFor returns the tag of a snapshot of a registry, for forks. A snapshot that an earlier call has pulled is used
// again: the tag is made of the digest.
func pulledFor(ctx context.Context, a *app, c *client.Client, ref string, plain bool) (string, error) {
	h := hubs{app: a, plain: plain}
	repo, cache, err := h.open(ctx, ref)
	if err != nil {
		return "", err
	}
	defer cache.Close()
	_, digest, of, err := artifact(ctx, repo)
	if err != nil {
		return "", hubError(err)
	}
	tag := tagOfDigest(tagFor("", of), digest)
	if _, err := c.Snapshot(ctx, tag); err == nil {
		return tag, nil
	}
	if _, err := h.pull(ctx, c, ref, pullOptions{tag: tag, lazy: true}); err != nil {
		return "", hubError(err)
	}
	return tag, nil
}

// snapshotOf returns the tag of the snapshot that a reference names. It is empty if the reference is of something else,
// or cannot be read: the caller then looks for an image.
func snapshotOf(ctx context.Context, a *app, c *client.Client, ref string) string {
	if !strings.ContainsRune(ref, '/') || strings.HasPrefix(ref, ".") || strings.HasPrefix(ref, "/") {
		return ""
	}
	if _, err := os.Stat(ref); err == nil {
		return ""
	}
	tag, err := pulledFor(ctx, a, c, ref, false)
	if err != nil {
		return ""
	}
	return tag
}

// tagOfDigest adds the beginning of a digest to a tag, which has at most 64 bytes.
func tagOfDigest(tag, digest string) string {
	hex := digest[len("sha256:"):]
	return tag[:min(len(tag), 50)] + "-" + hex[:12]
}
