package signed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/store/signature"
)

// maxReferrers limits the manifests with signatures that Find reads.
const maxReferrers = 16

// Find reads the signatures of an artifact, at most signature.MaxSignatures. They are not verified. A broken manifest
// or payload is an error unless there are other signatures, so that a stranger's cannot hide a good one.
func Find(ctx context.Context, repo *ociimage.Repository, digest string) ([]signature.Signature, error) {
	f := finder{repo: repo, seen: map[string]bool{}}
	raw, _, err := repo.At(signature.Tag(digest)).Manifest(ctx)
	if err == nil {
		err = f.manifest(ctx, raw)
	}
	if err != nil && !errors.Is(err, ociimage.ErrNotFound) {
		f.errs = append(f.errs, err)
	}
	refs, err := repo.Referrers(ctx, digest, signature.ArtifactType, maxReferrers)
	if err != nil {
		f.errs = append(f.errs, err)
	}
	for _, d := range refs {
		raw, _, err := repo.Digest(d.Digest.String()).Manifest(ctx)
		if err == nil {
			err = f.manifest(ctx, raw)
		}
		if err != nil {
			f.errs = append(f.errs, err)
		}
	}
	if len(f.found) == 0 && len(f.errs) > 0 {
		return nil, fmt.Errorf("read the signatures of %s: %w", digest, errors.Join(f.errs...))
	}
	return f.found, nil
}

type finder struct {
	repo  *ociimage.Repository
	found []signature.Signature
	seen  map[string]bool // by payload and signature
	errs  []error
}

func (f *finder) manifest(ctx context.Context, raw []byte) error {
	m, err := signature.ParseManifest(raw)
	if err != nil {
		return err
	}
	for _, l := range m.Layers {
		if len(f.found) == signature.MaxSignatures {
			return nil
		}
		b, err := f.repo.Blob(ctx, descriptor(l))
		if err != nil {
			return err
		}
		s, err := l.Of(b)
		if err != nil {
			return err
		}
		if key := string(s.Payload) + string(s.Signature); !f.seen[key] {
			f.seen[key] = true
			f.found = append(f.found, s)
		}
	}
	return nil
}

func descriptor(d signature.Descriptor) v1.Descriptor {
	h, _ := v1.NewHash(d.Digest) // checked before
	return v1.Descriptor{MediaType: types.MediaType(d.MediaType), Digest: h, Size: d.Size}
}

// Attach signs an artifact that the repository has, unless the key has signed it. Other signatures stay.
func Attach(ctx context.Context, repo *ociimage.Repository, key *signature.PrivateKey,
	of signature.Descriptor) error {
	at := repo.At(signature.Tag(of.Digest))
	m := signature.NewManifest(of)
	all, err := Find(ctx, repo, of.Digest)
	if err == nil {
		all, err = with(all, key, repo.Base(), of.Digest)
	}
	if err != nil {
		return err
	}
	up, err := at.Push(ctx)
	if err != nil {
		return err
	}
	blob := func(mediaType string, b []byte) error {
		return up.Blob(descriptor(signature.Describe(mediaType, b)), func() io.Reader { return bytes.NewReader(b) })
	}
	if err := blob(signature.ArtifactType, signature.Config); err != nil {
		return err
	}
	for _, s := range all {
		if err := blob(signature.PayloadType, s.Payload); err != nil {
			return err
		}
		m.Add(s)
	}
	raw, err := m.Encode()
	if err != nil {
		return err
	}
	return up.Manifest(raw, signature.ManifestType)
}

// with adds a signature of a key, unless it is there.
func with(all []signature.Signature, key *signature.PrivateKey, repository,
	digest string) ([]signature.Signature, error) {
	text, err := key.Public()
	if err != nil {
		return nil, err
	}
	public, err := signature.ParsePublic(text)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if named, err := public.Verify(s, digest); err == nil && named == repository {
			return all, nil
		}
	}
	if len(all) >= signature.MaxSignatures {
		return nil, fmt.Errorf("%s has %d signatures by other keys: delete the tag %s", digest, len(all),
			signature.Tag(digest))
	}
	s, err := key.Sign(repository, digest)
	return append(all, s), err
}
