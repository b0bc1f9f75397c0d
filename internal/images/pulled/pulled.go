// Package pulled makes short-lived images from container images in registries, for a daemon. It needs none of the
// tools of a build: kernel, initramfs and writable disk are another image's. An image has an unguessable name and a
// cache of layers of its own, because the daemon's tenants must not see each other's images and layers. It is removed
// when its Source is closed; a snapshot that was made of it stays. Which registries a tenant may use is the caller's
// decision.
package pulled

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/ociimage"
)

// Config configures a Store.
type Config struct {
	// Dir holds everything. It must be on the file system of Donors. Files of an earlier process are removed from it.
	Dir string
	// Donors has the images whose kernel, initramfs and disk are used.
	Donors *image.Store
	// Donor is the name of the preferred one of them.
	Donor string
	// Limits bound the resources for one image.
	Limits ociimage.Limits
	// Room returns an error if the disk has no space left. If nil, there is no limit.
	Room func() error
	// Configure sets a registry's mirrors and its security. May be nil.
	Configure func(*ociimage.Pull) error
}

// Limits are those of a daemon, which has many users: they bound its memory to about half a GiB for one image.
var Limits = ociimage.Limits{Entries: 500_000, Unpacked: 16 << 30, Compressed: 8 << 30, Metadata: 64 << 20}

// Store makes images and holds them until they are closed.
type Store struct {
	cfg    Config
	images *image.Store
}

// Open opens a store, and removes the files of an earlier process.
func Open(c Config) (*Store, error) {
	if err := image.Clear(c.Dir); err != nil {
		return nil, fmt.Errorf("open store of pulled images: %w", err)
	}
	images, err := image.OpenStore(filepath.Join(c.Dir, "images"))
	if err != nil {
		return nil, err
	}
	return &Store{cfg: c, images: images}, nil
}

// Images returns the store of the images.
func (s *Store) Images() *image.Store { return s.images }

// Request names an image in a registry.
type Request struct {
	Ref string // HOST/REPOSITORY:TAG or @DIGEST; without a host, Docker Hub
	// Username and Password are sent to the registry's host only. If both are empty, the request is anonymous, unless
	// Own is set.
	Username, Password string
	// Own allows the daemon's own credentials.
	Own bool
}

// Source is a container image in a registry. Close removes what was made of it.
type Source struct {
	store *Store
	dir   string
	cache *ociimage.Cache
	img   *ociimage.Image
	name  string // of the image; empty before Make
}

// Resolve asks the registry for an image's manifest and configuration.
func (s *Store) Resolve(ctx context.Context, r Request) (_ *Source, err error) {
	if err := s.room(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.cfg.Dir, "pull-")
	if err != nil {
		return nil, fmt.Errorf("pull %.200s: %w", r.Ref, err)
	}
	src := &Source{store: s, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, src.Close())
		}
	}()
	if src.cache, err = ociimage.OpenCache(filepath.Join(dir, "blobs")); err != nil {
		return nil, err
	}
	p := ociimage.Pull{Ref: r.Ref, Cache: src.cache, Limits: s.cfg.Limits, Keychain: r.keychain()}
	if s.cfg.Configure != nil {
		if err := s.cfg.Configure(&p); err != nil {
			return nil, err
		}
	}
	src.img, err = ociimage.Resolve(ctx, p)
	return src, err
}

// Digest returns the digest of the image's manifest.
func (s *Source) Digest() string { return s.img.Digest.String() }

// Progress receives the progress of Make: a step, its fraction, and a detail.
type Progress func(step string, fraction float64, detail string)

// Steps of Make.
const (
	StepLayers = "layers"
	StepRoot   = "root"
)

// Make downloads the layers and makes the image. It returns the image's name in Store.Images.
func (s *Source) Make(ctx context.Context, report Progress) (name string, err error) {
	donor, err := s.store.cfg.Donors.Donor(s.store.cfg.Donor)
	if errors.Is(err, image.ErrNotFound) {
		err = fmt.Errorf("%w, whose kernel this one could have: build one with `forkd image build %s`", err,
			s.store.cfg.Donor)
	}
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := func(step string, fraction float64, detail string) {
		if err := s.store.room(); err != nil {
			cancel(err)
		}
		report(step, fraction, detail)
	}
	root := s.img.Foreign()
	root.Name = namePrefix + strings.ToLower(rand.Text())
	root.MemoryMiB, root.VCPUs = donor.Defaults.MemoryMiB, donor.Defaults.VCPUs
	err = root.Fetch(ctx, func(fraction float64, detail string) { watched(StepLayers, fraction, detail) })
	if err == nil {
		s.name = root.Name
		_, err = image.Graft(ctx, s.store.images, donor, root, func(fraction float64) { watched(StepRoot, fraction, "") })
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return s.name, err
}

const namePrefix = "pulled-"

// Close removes the image and its layers.
func (s *Source) Close() error {
	var errs []error
	if s.img != nil {
		errs = append(errs, s.img.Close())
	}
	if s.cache != nil {
		errs = append(errs, s.cache.Close())
	}
	if s.name != "" {
		if err := s.store.images.Remove(s.name); err != nil && !errors.Is(err, image.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

func (s *Store) room() error {
	if s.cfg.Room == nil {
		return nil
	}
	return s.cfg.Room()
}

// keychain returns the credentials of a request.
func (r Request) keychain() authn.Keychain {
	if r.Username != "" || r.Password != "" {
		return given{host: ociimage.Host(r.Ref), auth: authn.AuthConfig{Username: r.Username, Password: r.Password}}
	}
	if r.Own {
		return nil
	}
	return authn.NewMultiKeychain()
}

// given has the credential for one host. Mirrors are asked without it.
type given struct {
	host string
	auth authn.AuthConfig
}

func (g given) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if r.RegistryStr() != g.host {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(g.auth), nil
}
