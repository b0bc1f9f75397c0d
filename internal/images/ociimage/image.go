package ociimage

import (
	"context"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Image is an image for linux/amd64 with a verified manifest and configuration. Its layers are verified when they
// are read.
type Image struct {
	// Source is the reference or the file's name, for people.
	Source string
	// Digest is the digest of the manifest. For files of `docker save`, which have no manifest, it is that of the
	// configuration.
	Digest v1.Hash
	// Config is the part of the configuration for running programs.
	Config Config

	layers []layer
	limits Limits
	fetch  func(ctx context.Context, report func(done, total int64)) error // downloads layers; may be nil
	close  func() error
}

// layer is one layer of an image.
type layer struct {
	digest v1.Hash // of the blob; zero if unknown
	diffID v1.Hash // of the tar
	size   int64   // of the blob; -1 if unknown
	open   func(ctx context.Context) (io.ReadCloser, error)
}

// Close releases the image's file. It is not an error to call it twice.
func (i *Image) Close() error {
	if i.close == nil {
		return nil
	}
	err := i.close()
	i.close = nil
	return err
}

// DiffIDs returns the digests of the unpacked layers, from the lowest to the highest.
func (i *Image) DiffIDs() []string {
	var all []string
	for _, l := range i.layers {
		all = append(all, l.diffID.String())
	}
	return all
}

// Fetch downloads the layers that are not in the cache. report receives the bytes of all layers. It is called from
// one goroutine at a time. Images of files need no Fetch.
func (i *Image) Fetch(ctx context.Context, report func(done, total int64)) error {
	if i.fetch == nil {
		return nil
	}
	return i.fetch(ctx, report)
}
