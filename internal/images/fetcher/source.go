package fetcher

import (
	"context"
	"io"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/partial"
)

// registry is a repository as a source of frames.
type registry struct{ repo *ociimage.Repository }

var _ partial.Source = registry{}

func openRegistry(ctx context.Context, o hub.Origin, logins []hub.Login) (registry, error) {
	repo, err := ociimage.OpenRepository(ctx, ociimage.Pull{
		Ref: o.Ref, Mirrors: o.Mirrors, PlainHTTP: o.PlainHTTP, Keychain: keychain(logins),
	})
	return registry{repo}, err
}

// Range implements partial.Source.
func (r registry) Range(ctx context.Context, d hub.Descriptor, at, n int64) (io.ReadCloser, error) {
	return r.repo.Range(ctx, v1.Descriptor{Digest: v1.Hash{Algorithm: "sha256", Hex: d.Hex()}, Size: d.Size}, at, n)
}

// Distrust implements partial.Source.
func (r registry) Distrust() { r.repo.DropMirrors() }

// keychain are the credentials of a client. It never reads those of the daemon's user.
type keychain []hub.Login

// Resolve implements authn.Keychain.
func (k keychain) Resolve(of authn.Resource) (authn.Authenticator, error) {
	i := slices.IndexFunc(k, func(l hub.Login) bool { return l.Host == of.RegistryStr() })
	if i < 0 {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(authn.AuthConfig{Username: k[i].Username, Password: k[i].Password,
		IdentityToken: k[i].IdentityToken, RegistryToken: k[i].RegistryToken}), nil
}
