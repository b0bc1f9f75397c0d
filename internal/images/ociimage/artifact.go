package ociimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Repository is a repository in a registry, for artifacts that are not images. It requests with the precautions of
// Resolve.
type Repository struct {
	// Name is the whole name of the reference.
	Name string
	r    *registry
	ref  name.Reference
}

// OpenRepository finds the repository of a reference and its credentials. It sends no request.
func OpenRepository(ctx context.Context, p Pull) (*Repository, error) {
	r, ref, err := p.registry(ctx)
	if err != nil {
		return nil, err
	}
	return &Repository{Name: ref.Name(), r: r, ref: ref}, nil
}

// Manifest reads the manifest of the reference.
func (r *Repository) Manifest(ctx context.Context) ([]byte, v1.Hash, error) {
	d, raw, err := r.r.top(ctx)
	return raw, d.Digest, err
}

// Blob reads a small blob, and compares it with its descriptor.
func (r *Repository) Blob(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	b, err := r.r.blob(ctx, d, d.Size)
	if err == nil {
		err = verify(d, b)
	}
	return b, err
}

// Fetch downloads the blobs that the cache does not have.
func (r *Repository) Fetch(ctx context.Context, blobs []v1.Descriptor, report func(done, total int64)) error {
	layers := make([]layer, len(blobs))
	for i, d := range blobs {
		layers[i] = layer{digest: d.Digest, size: d.Size}
	}
	return r.r.fetchAll(ctx, layers, report)
}

// Open opens a blob that Fetch has downloaded.
func (r *Repository) Open(d v1.Descriptor) (*os.File, error) {
	return os.Open(r.r.cache.path(d.Digest))
}

// options are those of the library's requests, which are repeated here and not by the library.
func (r *Repository) options(ctx context.Context) []remote.Option {
	t := polite{base: newTransport(r.r.repo.RegistryStr()), scheme: r.r.repo.Scheme()}
	return []remote.Option{remote.WithContext(ctx), remote.WithAuth(r.r.origin().auth), remote.WithTransport(t),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1})}
}

// Base returns the name of the repository, without tag and digest.
func (r *Repository) Base() string { return r.r.repo.Name() }

// Push uploads blobs and a manifest. Its requests share connections.
type Push struct {
	repo    *Repository
	options []remote.Option
	ctx     context.Context //nolint:containedctx // of one push
}

// Push begins an upload. It refuses a reference with a digest.
func (r *Repository) Push(ctx context.Context) (*Push, error) {
	if _, is := r.ref.(name.Tag); !is {
		return nil, invalid("push to %s: want a tag, not a digest", r.Name)
	}
	options := r.options(ctx)
	pusher, err := remote.NewPusher(options...)
	if err != nil {
		return nil, failure(err)
	}
	return &Push{repo: r, options: append(options, remote.Reuse(pusher)), ctx: ctx}, nil
}

// Blob uploads a blob unless the registry has it. open may be called several times.
func (p *Push) Blob(d v1.Descriptor, open func() io.Reader) error {
	there, err := p.repo.r.has(p.ctx, d)
	if err != nil {
		return fmt.Errorf("look for blob %s: %w", d.Digest, err)
	}
	if there {
		return nil
	}
	err = p.retry(func() error {
		return remote.WriteLayer(p.repo.r.repo, blobLayer{d, open}, p.options...)
	})
	if err != nil {
		return fmt.Errorf("push blob %s: %w", d.Digest, err)
	}
	return nil
}

// Manifest uploads the manifest and gives it the tag.
func (p *Push) Manifest(raw []byte, mediaType string) error {
	err := p.retry(func() error {
		return remote.Put(p.repo.ref, rawManifest{raw, types.MediaType(mediaType)}, p.options...)
	})
	if err != nil {
		return fmt.Errorf("push the manifest of %s: %w", p.repo.Name, err)
	}
	return nil
}

func (p *Push) retry(f func() error) error {
	return p.repo.r.retry(p.ctx, func() (bool, error) {
		err := f()
		if err == nil {
			return false, nil
		}
		return false, failure(err)
	})
}

// maxTags limits the tags that Tags returns.
const maxTags = 10_000

// Tags lists the tags of the repository, at most maxTags.
func (r *Repository) Tags(ctx context.Context) (tags []string, err error) {
	err = r.r.retry(ctx, func() (bool, error) {
		tags = nil
		err := r.tags(ctx, func(page []string) bool {
			tags = append(tags, page...)
			return len(tags) < maxTags && len(page) > 0
		})
		if err != nil {
			return false, failure(err)
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.r.repo, err)
	}
	return tags[:min(len(tags), maxTags)], nil
}

// tags calls each with the pages of tags, as long as it returns true.
func (r *Repository) tags(ctx context.Context, each func([]string) bool) error {
	puller, err := remote.NewPuller(r.options(ctx)...)
	if err != nil {
		return err
	}
	pages, err := puller.Lister(ctx, r.r.repo)
	if err != nil {
		return err
	}
	for pages.HasNext() {
		page, err := pages.Next(ctx)
		if err != nil {
			return err
		}
		if !each(page.Tags) {
			return nil
		}
	}
	return nil
}

// Referrers lists manifests of a type that refer to a manifest, at most limit. Registries without the API of OCI 1.1
// have the list as an index, under a tag made of the digest.
func (r *Repository) Referrers(ctx context.Context, digest, artifactType string, limit int) ([]v1.Descriptor, error) {
	raw, err := r.r.get(ctx, "referrers", digest, maxManifest)
	index, parsed := referrersOf(raw, err)
	if !parsed {
		raw, _, err = r.At(strings.Replace(digest, ":", "-", 1)).Manifest(ctx)
		if errors.Is(err, ErrNotFound) {
			return nil, nil
		}
		if index, parsed = referrersOf(raw, err); err == nil && !parsed {
			err = invalid("the list of referrers is not an index")
		}
		if err != nil {
			return nil, fmt.Errorf("list referrers of %s: %w", digest, err)
		}
	}
	var found []v1.Descriptor
	for _, d := range index.Manifests {
		if d.ArtifactType == artifactType && len(found) < limit && checkDigest(d.Digest) == nil {
			found = append(found, d)
		}
	}
	return found, nil
}

// referrersOf decodes a list of referrers. Registries without the API answer with errors and with web pages.
func referrersOf(raw []byte, err error) (*v1.IndexManifest, bool) {
	if err != nil {
		return nil, false
	}
	index, is, err := parseIndex(raw)
	return index, is && err == nil
}

// At returns the repository with another tag.
func (r *Repository) At(tag string) *Repository {
	// The endpoints are shared, with their connections and tokens.
	own := &registry{repo: r.r.repo, target: tag, endpoints: r.r.endpoints, cache: r.r.cache, wait: r.r.wait}
	ref := r.r.repo.Tag(tag)
	return &Repository{Name: ref.Name(), r: own, ref: ref}
}

// Digest returns the repository with a manifest's digest as the reference.
func (r *Repository) Digest(digest string) *Repository {
	other := r.At("latest")
	other.r.target, other.ref = digest, r.r.repo.Digest(digest)
	other.Name = other.ref.Name()
	return other
}

// blobLayer is a blob as go-containerregistry uploads it.
type blobLayer struct {
	d    v1.Descriptor
	open func() io.Reader
}

func (b blobLayer) Digest() (v1.Hash, error)             { return b.d.Digest, nil }
func (b blobLayer) DiffID() (v1.Hash, error)             { return b.d.Digest, nil }
func (b blobLayer) Size() (int64, error)                 { return b.d.Size, nil }
func (b blobLayer) MediaType() (types.MediaType, error)  { return b.d.MediaType, nil }
func (b blobLayer) Compressed() (io.ReadCloser, error)   { return io.NopCloser(b.open()), nil }
func (b blobLayer) Uncompressed() (io.ReadCloser, error) { return b.Compressed() }

type rawManifest struct {
	raw  []byte
	kind types.MediaType
}

func (m rawManifest) RawManifest() ([]byte, error)        { return m.raw, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return m.kind, nil }
