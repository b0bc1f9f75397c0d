package ociimage

import (
	"context"
	"fmt"
	"io"
	"os"

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

func (r *Repository) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuth(r.r.auth),
		remote.WithTransport(newTransport(r.r.repo.RegistryStr()))}
}

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
	if err := remote.WriteLayer(p.repo.r.repo, blobLayer{d, open}, p.options...); err != nil {
		return fmt.Errorf("push blob %s: %w", d.Digest, failure(err))
	}
	return nil
}

// Manifest uploads the manifest and gives it the tag.
func (p *Push) Manifest(raw []byte, mediaType string) error {
	if err := remote.Put(p.repo.ref, rawManifest{raw, types.MediaType(mediaType)}, p.options...); err != nil {
		return fmt.Errorf("push the manifest of %s: %w", p.repo.Name, failure(err))
	}
	return nil
}

// Tags lists the tags of the repository.
func (r *Repository) Tags(ctx context.Context) ([]string, error) {
	tags, err := remote.List(r.r.repo, r.options(ctx)...)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.r.repo, failure(err))
	}
	return tags, nil
}

// At returns the repository with another tag.
func (r *Repository) At(tag string) *Repository {
	own := &registry{repo: r.r.repo, target: tag, auth: r.r.auth, cache: r.r.cache, wait: r.r.wait}
	ref := r.r.repo.Tag(tag)
	return &Repository{Name: ref.Name(), r: own, ref: ref}
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
