//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/forkd/forkd/cmd/internal/registries"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/bootable"
	"github.com/forkd/forkd/internal/images/ecr"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/images/pulled"
)

// pulls gives builds of templates the images of registries.
type pulls struct {
	store  *pulled.Store
	images *image.Store // of this host
	hosts  []string     // that tenants may use
	ecr    ecr.Client
}

var _ build.Registry = pulls{}

func (o serveOptions) openPulls(images *image.Store) (pulls, error) {
	store, err := pulled.Open(pulled.Config{
		Dir: filepath.Join(o.data, "e2b-pulls"), Donors: images, Donor: "base", Limits: pulled.Limits,
		Room: imageRoom(o.data, int64(o.diskReserveMiB)<<20), Configure: registries.Apply,
	})
	return pulls{store: store, images: images, hosts: o.fetch.from}, err
}

// Check returns an error if the caller may not use the registry: the daemon sends the requests, from its place in the
// network.
func (p pulls) Check(ctx context.Context, r build.Reference) error {
	ref, host := r.Ref, ociimage.Host(r.Ref)
	if host == "" {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "image '%s': want HOST/REPOSITORY:TAG, or @DIGEST instead of the tag",
			sandbox.Clip(ref))
	}
	if r.AWS != nil {
		if err := ecr.Keys(*r.AWS).Check(host); err != nil {
			return sandbox.Errorf(sandbox.ErrInvalid, "", "image '%s': %w", sandbox.Clip(ref), err)
		}
	}
	// With credentials the registry is asked in any case.
	if _, here := p.Here(ctx, ref); here && r.Anonymous() {
		return nil
	}
	if principal.From(ctx).Tenant != "" && !slices.Contains(p.hosts, host) {
		return sandbox.Errorf(sandbox.ErrForbidden, "", "image '%s' would come from the registry %s, which this server does "+
			"not fetch from for tenants (forkd serve --fetch-from)", sandbox.Clip(ref), host)
	}
	return nil
}

// Here returns the image that `forkd image pull` made from the reference.
func (p pulls) Here(_ context.Context, ref string) (string, bool) {
	canonical, err := ociimage.Canonical(ref)
	if err != nil {
		return "", false
	}
	img, err := p.images.Get(ociimage.NameOf(ref))
	if err != nil || img.Container == nil || img.Container.Reference != canonical {
		return "", false
	}
	return img.Name, true
}

// login returns a reference with the password that AWS gives for its keys. It is for one pull.
func (p pulls) login(ctx context.Context, r build.Reference) (build.Reference, error) {
	if r.AWS == nil {
		return r, nil
	}
	l, err := p.ecr.Login(ctx, ociimage.Host(r.Ref), ecr.Keys(*r.AWS))
	return build.Reference{Ref: r.Ref, Username: l.Username, Password: l.Password}, err
}

// Resolve asks a registry for an image. The operator's builds can use the daemon's own credentials.
func (p pulls) Resolve(ctx context.Context, r build.Reference) (build.Pulled, error) {
	r, err := p.login(ctx, r)
	if err != nil {
		return nil, err
	}
	src, err := p.store.Resolve(ctx, pulled.Request{Ref: r.Ref, Username: r.Username, Password: r.Password,
		Own: principal.From(ctx).Tenant == ""})
	if err != nil {
		return nil, err
	}
	return pulledImage{src}, nil
}

// pulledImage is an image of a registry for one build.
type pulledImage struct{ *pulled.Source }

// Make reports each tenth of the way, because the lines stay in the build's log.
func (p pulledImage) Make(ctx context.Context, say func(string)) (string, error) {
	last, tenth := "", -1
	return p.Source.Make(ctx, func(step string, fraction float64, detail string) {
		if now := int(fraction * 10); step != last || now != tenth {
			last, tenth = step, now
			if detail == "" {
				detail = fmt.Sprintf("%d %%", now*10)
			}
			say(step + ": " + detail)
		}
	})
}

// bootImages are the images of this host, and those of builds in progress. The names of the latter are secrets.
type bootImages struct{ here, pulled sandbox.Images }

func (b bootImages) Image(ctx context.Context, name string) (sandbox.Image, error) {
	img, err := b.here.Image(ctx, name)
	if !errors.Is(err, sandbox.ErrNotFound) {
		return img, err
	}
	if other, bad := b.pulled.Image(ctx, name); bad == nil {
		return other, nil
	}
	return img, err
}

// bootable returns all images that the engine can boot.
func (p pulls) bootable() sandbox.Images {
	return bootImages{bootable.Images(p.images), bootable.Images(p.store.Images())}
}
