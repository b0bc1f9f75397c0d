package ociimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Pull configures Resolve.
type Pull struct {
	Ref       string // host/repository:tag or @digest; without a host, Docker Hub
	PlainHTTP bool   // also for hosts that are not this one
	// Mirrors are asked before the registry, in their order: http(s)://HOST[:PORT][/PREFIX]. What they send is
	// compared with its digest, but the digest of a tag is their word.
	Mirrors  []string
	Cache    *Cache
	Keychain authn.Keychain // if nil, Docker's configuration and its helpers
	Limits   Limits
	// Wait is the time before the first repetition of a request; it doubles each time. If 0, half a second.
	Wait time.Duration
}

const attempts = 6 // of a request, and of a download without progress

// registry is a repository in a registry, and in its mirrors.
type registry struct {
	repo      name.Repository
	target    string      // tag or digest
	endpoints []*endpoint // in the order of their use; the last one is the registry
	cache     *Cache
	wait      time.Duration
}

// Resolve asks a registry for an image's manifest and configuration, but not for its layers.
func Resolve(ctx context.Context, p Pull) (*Image, error) {
	r, ref, err := p.registry(ctx)
	if err != nil {
		return nil, err
	}
	img, err := r.resolve(ctx, p.Limits.complete())
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", ref.Name(), err)
	}
	img.Source = ref.Name()
	return img, nil
}

// registry finds the repository and its credentials. It sends no request.
func (p Pull) registry(ctx context.Context) (*registry, name.Reference, error) {
	var options []name.Option
	if p.PlainHTTP {
		options = append(options, name.Insecure)
	}
	ref, err := name.ParseReference(p.Ref, options...)
	if err != nil {
		return nil, nil, invalid("reference %.200q: %w", p.Ref, err)
	}
	endpoints, err := p.endpoints(ctx, ref.Context())
	if err != nil {
		return nil, nil, err
	}
	r := &registry{repo: ref.Context(), target: ref.Identifier(), endpoints: endpoints, cache: p.Cache, wait: p.Wait}
	if r.wait == 0 {
		r.wait = 500 * time.Millisecond
	}
	return r, ref, nil
}

func (r *registry) resolve(ctx context.Context, limits Limits) (*Image, error) {
	d, raw, err := r.top(ctx)
	if err != nil {
		return nil, err
	}
	first := &known{registry: r, digest: d.Digest, raw: raw}
	img, err := resolve(ctx, first, d, limits)
	if err != nil {
		return nil, err
	}
	img.fetch = func(ctx context.Context, report func(done, total int64)) error {
		return r.fetchAll(ctx, img.layers, report)
	}
	return img, nil
}

// known is a registry with one manifest that was read already.
type known struct {
	*registry
	digest v1.Hash
	raw    []byte
}

func (k *known) manifest(ctx context.Context, d v1.Descriptor, limit int64) ([]byte, error) {
	if d.Digest == k.digest {
		return k.raw, nil
	}
	return k.registry.manifest(ctx, d, limit)
}

// top reads the manifest of the tag or digest. The digest of a tag is computed, and not the registry's word.
func (r *registry) top(ctx context.Context) (v1.Descriptor, []byte, error) {
	raw, err := r.get(ctx, "manifests", r.target, maxManifest)
	if err != nil {
		return v1.Descriptor{}, nil, err
	}
	d := v1.Descriptor{Digest: digestOf(raw), Size: int64(len(raw))}
	if strings.Contains(r.target, ":") && r.target != d.Digest.String() {
		return d, nil, invalid("the registry sent a manifest with the digest %s", d.Digest)
	}
	return d, raw, nil
}

func (r *registry) manifest(ctx context.Context, d v1.Descriptor, limit int64) ([]byte, error) {
	return r.get(ctx, "manifests", d.Digest.String(), limit)
}

func (r *registry) blob(ctx context.Context, d v1.Descriptor, limit int64) ([]byte, error) {
	return r.get(ctx, "blobs", d.Digest.String(), limit)
}

// open opens a downloaded blob.
func (r *registry) open(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	return os.Open(r.cache.path(d.Digest))
}

// get reads a small object. It repeats the request after temporary failures.
func (r *registry) get(ctx context.Context, kind, id string, limit int64) (b []byte, err error) {
	err = r.retry(ctx, func() (bool, error) {
		b, err = r.getOnce(ctx, kind, id, limit)
		return false, err
	})
	return b, err
}

func (r *registry) getOnce(ctx context.Context, kind, id string, limit int64) ([]byte, error) {
	ctx, stalled := withStall(ctx)
	defer stalled.stop()
	res, from, err := r.do(ctx, kind, id, "")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(stalled.reader(res.Body), limit+1))
	switch {
	case err != nil:
		err = failure(err)
	case int64(len(b)) > limit:
		err = invalid("%s has more than %d bytes", id, limit)
	case from.mirror && strings.Contains(id, ":") && digestOf(b).String() != id: // callers check the registry's answer
		err = invalid("the content of %s has the digest %s", id, digestOf(b))
	}
	return b, from.distrust(err)
}

var manifestTypes = strings.Join([]string{
	string(types.OCIManifestSchema1), string(types.OCIImageIndex),
	string(types.DockerManifestSchema2), string(types.DockerManifestList),
}, ", ")

// temporary is a failure after which the same request may succeed.
type temporary struct {
	error
	after time.Duration // requested by the registry
}

func (t *temporary) Unwrap() error { return t.error }

// retry repeats f after temporary failures, unless it failed several times in a row without progress.
func (r *registry) retry(ctx context.Context, f func() (progress bool, err error)) error {
	wait := r.wait
	for failed := 1; ; failed++ {
		progress, err := f()
		var t *temporary
		if err == nil || !errors.As(err, &t) {
			return err
		}
		if progress {
			failed, wait = 1, r.wait
		}
		if failed == attempts {
			return fmt.Errorf("%w (after %d attempts)", err, attempts)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(max(wait, t.after)):
		}
		wait *= 2
	}
}

const maxRetryAfter = time.Minute

func statusError(res *http.Response) error {
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 512))
	err := fmt.Errorf("%w answered %s: %q", ErrRegistry, res.Status, bytes.TrimSpace(text))
	switch code := res.StatusCode; {
	case code == http.StatusNotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return accessError(err)
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return &temporary{err, min(time.Duration(max(seconds, 0))*time.Second, maxRetryAfter)}
	default:
		return err
	}
}

func accessError(err error) error {
	return fmt.Errorf("%w: %w (the image is missing or private; `docker login`, `podman login` or `skopeo login` "+
		"stores credentials)", errAccess, err)
}

var errAccess = errors.New("access denied")

// failure classifies an error of a request. It removes addresses, because those of redirects contain secrets.
func failure(err error) error {
	var status *transport.Error
	if errors.As(err, &status) {
		err := fmt.Errorf("%w answered %d: %w", ErrRegistry, status.StatusCode, err)
		switch {
		case status.StatusCode == http.StatusUnauthorized || status.StatusCode == http.StatusForbidden:
			return accessError(err)
		case status.Temporary() || status.StatusCode == http.StatusTooManyRequests || status.StatusCode >= 500:
			return &temporary{err, 0}
		}
		return err
	}
	var u *url.Error
	if errors.As(err, &u) {
		host := ""
		if at, bad := url.Parse(u.URL); bad == nil {
			host = at.Host
		}
		err = fmt.Errorf("%s: %w", host, u.Err)
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, errRedirect), errors.Is(err, errAddress),
		errors.Is(err, errAnswer),
		strings.Contains(err.Error(), "SSRF protection"): // the library has no value for its refusal of an address
		return fmt.Errorf("%w: %w", ErrRegistry, err)
	}
	return &temporary{fmt.Errorf("%w: %w", ErrRegistry, err), 0}
}
