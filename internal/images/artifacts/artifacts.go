// Package artifacts gets snapshots from registries for programs that work for many users: each pull names its digest and
// has credentials of its own, only allowed registries are asked, and no pull uses what another one
// has read. Command lines have packages hub and ociimage instead. The trap: the operator of the program sends the requests, so
// an allowed registry is one that all its users may reach.
package artifacts

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/forkd/forkd/internal/images/ociimage"
	"github.com/forkd/forkd/internal/store/hub"
)

// Reasons of errors, as in conditions of Kubernetes.
const (
	ReasonInvalid    = "InvalidConfiguration" // the reference, the credentials or the artifact
	ReasonNotAllowed = "RegistryNotAllowed"
	ReasonNotFound   = "ArtifactNotFound"
	ReasonFailed     = "PullFailed" // it may work later
	ReasonBusy       = "PullWaits"  // for other pulls
)

// Error is an error with a reason.
type Error struct {
	reason string
	err    error
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Reason returns one of the reasons.
func (e *Error) Reason() string { return e.reason }

func wrong(reason, format string, args ...any) error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

// Config configures a Puller.
type Config struct {
	// Allow are registries, HOST[:PORT], or beginnings of repositories, HOST[:PORT]/PREFIX.
	Allow []string
	// Dir has a folder of each running pull.
	Dir string
	// Most limits the bytes of a snapshot. Default 64 GiB.
	Most int64
	// Pulls limits the pulls at the same time. Default 2.
	Pulls int
	// Wait is that of ociimage.Pull.
	Wait time.Duration
}

// Puller gets snapshots from registries.
type Puller struct {
	cfg   Config
	slots chan struct{}
}

// New returns a Puller.
func New(c Config) *Puller {
	if c.Most == 0 {
		c.Most = 64 << 30
	}
	if c.Pulls == 0 {
		c.Pulls = 2
	}
	return &Puller{c, make(chan struct{}, c.Pulls)}
}

// Open reads the description of the snapshot HOST/REPOSITORY@sha256:DIGEST, with the credentials of login: the content of
// Docker's config.json, or nil. The caller closes the result.
func (p *Puller) Open(ctx context.Context, ref string, login []byte) (_ *Pulled, err error) {
	digest, err := name.NewDigest(ref, name.StrictValidation)
	if err != nil {
		return nil, wrong(ReasonInvalid, "artifact %.200q: want HOST/REPOSITORY@sha256:DIGEST", ref)
	}
	if !p.allowed(digest.Context().Name()) {
		return nil, wrong(ReasonNotAllowed, "the operator of the cluster does not allow the registry of %s", digest.Context())
	}
	keys, err := parse(login)
	if err != nil {
		return nil, wrong(ReasonInvalid, "the credentials: %w", err)
	}
	select {
	case p.slots <- struct{}{}:
	default:
		return nil, wrong(ReasonBusy, "%d other pulls are running", p.cfg.Pulls)
	}
	out := &Pulled{free: func() { <-p.slots }}
	defer func() {
		if err != nil {
			err = errors.Join(judged(err), out.Close())
		}
	}()
	if out.dir, err = os.MkdirTemp(p.cfg.Dir, "pull-"); err != nil {
		return nil, err
	}
	if out.cache, err = ociimage.OpenCache(out.dir); err != nil {
		return nil, err
	}
	out.repo, err = ociimage.OpenRepository(ctx,
		ociimage.Pull{Ref: ref, Cache: out.cache, Keychain: keys, Wait: p.cfg.Wait})
	if err != nil {
		return nil, err
	}
	raw, _, err := out.repo.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	a, err := hub.ParseArtifact(raw)
	if err != nil {
		return nil, err
	}
	if a.Bytes() > p.cfg.Most {
		return nil, wrong(ReasonInvalid, "the snapshot has %d bytes, want at most %d", a.Bytes(), p.cfg.Most)
	}
	out.out = &hub.Outgoing{Raw: raw, Artifact: a,
		Open: func(d hub.Descriptor) (io.ReadCloser, error) { return out.repo.Open(descriptor(d)) }}
	return out, out.fetch(ctx, a.Blobs()[:min(3, 1+len(a.Layers))]) // configuration and state
}

// allowed compares a repository with the list.
func (p *Puller) allowed(repository string) bool {
	for _, a := range p.cfg.Allow {
		a = strings.TrimSuffix(a, "/")
		if a == "docker.io" || strings.HasPrefix(a, "docker.io/") {
			a = "index." + a // its name in references
		}
		if a != "" && strings.HasPrefix(repository, a+"/") || repository == a {
			return true
		}
	}
	return false
}

// judged adds a reason to an error without one.
func judged(err error) error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, ociimage.ErrInvalid), errors.Is(err, hub.ErrInvalid):
		return &Error{ReasonInvalid, err}
	case errors.Is(err, ociimage.ErrNotFound):
		return &Error{ReasonNotFound, err}
	}
	return &Error{ReasonFailed, err}
}

func descriptor(d hub.Descriptor) v1.Descriptor {
	return v1.Descriptor{MediaType: types.MediaType(d.MediaType), Size: d.Size,
		Digest: v1.Hash{Algorithm: "sha256", Hex: d.Hex()}}
}

// Pulled is a snapshot on its way from a registry.
type Pulled struct {
	dir   string
	cache *ociimage.Cache
	repo  *ociimage.Repository
	out   *hub.Outgoing
	free  func()
}

func (p *Pulled) fetch(ctx context.Context, some []hub.Descriptor) error {
	blobs := make([]v1.Descriptor, len(some))
	for i, d := range some {
		blobs[i] = descriptor(d)
	}
	return p.repo.Fetch(ctx, blobs, func(int64, int64) {})
}

// Probe sends the beginning, by which a daemon tells whether it can run the snapshot.
func (p *Pulled) Probe(send func(io.Reader) error) error { return p.stream(true, send) }

// Fetch downloads the rest.
func (p *Pulled) Fetch(ctx context.Context) error {
	if err := p.fetch(ctx, p.out.Artifact.Blobs()); err != nil {
		return judged(err)
	}
	return nil
}

// Send sends the snapshot.
func (p *Pulled) Send(send func(io.Reader) error) error { return p.stream(false, send) }

// stream makes the stream for a daemon while send reads it. An error about the blobs comes before the daemon's, which is
// a consequence.
func (p *Pulled) stream(probe bool, send func(io.Reader) error) error {
	r, w := io.Pipe()
	made := make(chan error, 1)
	go func() {
		err := p.out.Write(w, probe)
		w.CloseWithError(err)
		made <- err
	}()
	sent := send(r)
	r.CloseWithError(io.ErrClosedPipe) // ends the stream if the daemon stopped reading
	if err := <-made; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return judged(err)
	}
	return sent
}

// Close removes what was downloaded.
func (p *Pulled) Close() (err error) {
	defer p.free()
	if p.cache != nil {
		err = p.cache.Close()
	}
	if p.dir != "" {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

// logins are the credentials of one pull, by registry.
type logins map[string]authn.AuthConfig

// Resolve implements authn.Keychain. It knows no credentials of the program itself.
func (l logins) Resolve(r authn.Resource) (authn.Authenticator, error) {
	host := r.RegistryStr()
	for _, key := range []string{host, "https://" + host, "https://" + host + "/v1/", "http://" + host} {
		if c, ok := l[key]; ok {
			return authn.FromConfig(c), nil
		}
	}
	return authn.Anonymous, nil
}

// parse reads Docker's config.json. Helpers and stores of credentials are left out: they are programs.
func parse(text []byte) (logins, error) {
	out := logins{}
	if text == nil {
		return out, nil
	}
	var file struct {
		Auths map[string]struct {
			Auth, Username, Password, IdentityToken, RegistryToken string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, errors.New("want the JSON of Docker's config.json")
	}
	for host, a := range file.Auths {
		c := authn.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken,
			RegistryToken: a.RegistryToken}
		if a.Auth != "" {
			b, err := base64.StdEncoding.DecodeString(a.Auth)
			user, password, ok := strings.Cut(string(b), ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("auth of %.100q is not the base64 of USER:PASSWORD", host)
			}
			c.Username, c.Password = user, password
		}
		out[host] = c
	}
	return out, nil
}
