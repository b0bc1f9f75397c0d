package ociimage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// contents is a place with blobs by digest. Its users verify what it returns.
type contents interface {
	// manifest and blob return at most limit bytes.
	manifest(ctx context.Context, d v1.Descriptor, limit int64) ([]byte, error)
	blob(ctx context.Context, d v1.Descriptor, limit int64) ([]byte, error)
	open(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// layerTypes are the known types of layers. The compression is found from the content, as other tools do.
var layerTypes = []types.MediaType{
	types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer,
	types.OCIRestrictedLayer, types.OCIUncompressedRestrictedLayer, types.DockerForeignLayer,
	"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
	"application/vnd.docker.image.rootfs.diff.tar.zstd",
}

// resolve reads the manifest of d, or of the image for linux/amd64 in an index, and its configuration.
func resolve(ctx context.Context, c contents, d v1.Descriptor, limits Limits) (*Image, error) {
	d, raw, err := resolveIndex(ctx, c, d)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(raw, limits)
	if err != nil {
		return nil, err
	}
	rawConfig, err := c.blob(ctx, m.Config, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if err := verify(m.Config, rawConfig); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	config, diffIDs, err := parseConfig(rawConfig, len(m.Layers))
	if err != nil {
		return nil, err
	}
	img := &Image{Digest: d.Digest, Config: config, limits: limits}
	for i, l := range m.Layers {
		img.layers = append(img.layers, layer{digest: l.Digest, diffID: diffIDs[i], size: l.Size,
			open: func(ctx context.Context) (io.ReadCloser, error) { return c.open(ctx, l) }})
	}
	return img, nil
}

// resolveIndex follows indexes to a manifest.
func resolveIndex(ctx context.Context, c contents, d v1.Descriptor) (v1.Descriptor, []byte, error) {
	for range maxNested + 1 {
		if err := checkDigest(d.Digest); err != nil {
			return d, nil, err
		}
		raw, err := c.manifest(ctx, d, maxManifest)
		if err != nil {
			return d, nil, fmt.Errorf("read manifest %s: %w", d.Digest, err)
		}
		if err := verify(d, raw); err != nil {
			return d, nil, fmt.Errorf("manifest: %w", err)
		}
		index, is, err := parseIndex(raw)
		if err != nil || !is {
			return d, raw, err
		}
		if d, err = choose(index.Manifests); err != nil {
			return d, nil, err
		}
	}
	return d, nil, invalid("more than %d indexes in each other", maxNested)
}

// verify compares a blob with its descriptor. A negative size is unknown.
func verify(d v1.Descriptor, b []byte) error {
	if d.Size >= 0 && d.Size != int64(len(b)) {
		return invalid("%s has %d bytes, not %d", d.Digest, len(b), d.Size)
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != d.Digest.Hex {
		return invalid("the content of %s has the digest sha256:%s", d.Digest, got)
	}
	return nil
}

// parseIndex decodes an index. is is false for a document that is not an index.
func parseIndex(raw []byte) (index *v1.IndexManifest, is bool, err error) {
	index, err = v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, false, invalid("decode manifest: %w", err)
	}
	if len(index.Manifests) > maxVariants {
		return nil, false, invalid("an index of %d manifests", len(index.Manifests))
	}
	return index, index.MediaType.IsIndex() || index.MediaType == "" && len(index.Manifests) > 0, nil
}

func parseManifest(raw []byte, limits Limits) (*v1.Manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, invalid("decode manifest: %w", err)
	}
	switch {
	case m.SchemaVersion == 1:
		return nil, invalid("the manifest has Docker's schema 1; push the image again with a current tool")
	case m.MediaType != "" && !m.MediaType.IsImage():
		return nil, invalid("the manifest has the unknown type %q", m.MediaType)
	case !m.Config.MediaType.IsConfig():
		return nil, invalid("this is not an image, but an artifact of type %q", m.Config.MediaType)
	case len(m.Layers) > limits.Layers:
		return nil, invalid("%d layers, more than %d", len(m.Layers), limits.Layers)
	}
	total := int64(0)
	for _, l := range append(slices.Clone(m.Layers), m.Config) {
		if err := checkDigest(l.Digest); err != nil {
			return nil, err
		}
		if l.Size < 0 || l.Size > limits.Compressed || total+l.Size > limits.Compressed {
			return nil, invalid("layers of more than %d bytes", limits.Compressed)
		}
		total += l.Size
	}
	for i, l := range m.Layers {
		if !slices.Contains(layerTypes, l.MediaType) {
			return nil, invalid("layer %d has the unknown type %q", i+1, l.MediaType)
		}
	}
	return m, nil
}

// choose returns the descriptor for linux/amd64. A single image without a platform may be for it as well.
func choose(all []v1.Descriptor) (v1.Descriptor, error) {
	var have []string
	var unknown, images []v1.Descriptor
	for _, d := range all {
		p := d.Platform
		switch {
		case p == nil || p.OS == "" && p.Architecture == "":
			unknown = append(unknown, d)
		case p.OS == "unknown": // signatures and attestations
		case p.OS == "linux" && p.Architecture == "amd64":
			images = append(images, d)
		default:
			have = append(have, platformName(p.OS, p.Architecture, p.Variant))
		}
	}
	// Higher variants need instructions that a guest may not have.
	slices.SortStableFunc(images, func(a, b v1.Descriptor) int {
		return strings.Compare(a.Platform.Variant, b.Platform.Variant)
	})
	switch {
	case len(images) > 0:
		return images[0], nil
	case len(unknown) == 1:
		return unknown[0], nil
	case len(unknown) > 1:
		return v1.Descriptor{}, invalid("%d images without a platform; name one of them: %s",
			len(unknown), strings.Join(refNames(unknown), ", "))
	}
	return v1.Descriptor{}, platformError(have)
}

func refNames(all []v1.Descriptor) []string {
	var names []string
	for _, d := range all {
		if n := d.Annotations[refName]; n != "" {
			names = append(names, n)
		} else {
			names = append(names, d.Digest.String())
		}
	}
	return names
}

func platformName(os, arch, variant string) string {
	name := os + "/" + arch
	if variant != "" {
		name += "/" + variant
	}
	return name
}

func platformError(have []string) error {
	if len(have) == 0 {
		return fmt.Errorf("%w: the index is empty", ErrPlatform)
	}
	slices.Sort(have)
	return fmt.Errorf("%w: it is for %.500s", ErrPlatform, strings.Join(slices.Compact(have), ", "))
}
