package ociimage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// endpoint is a place from which a repository can be read: a mirror, or the registry itself.
type endpoint struct {
	repo   name.Repository
	auth   authn.Authenticator
	mirror bool
	failed atomic.Bool // a mirror that is not asked any more

	mu     sync.Mutex
	client *http.Client
}

// CheckMirror returns an error for a URL that cannot be a mirror. It is http(s)://HOST[:PORT][/PREFIX].
func CheckMirror(mirror string) error {
	_, err := mirrorOf(mirror, "repository")
	return err
}

// mirrorOf returns a repository in a mirror.
func mirrorOf(mirror, repository string) (name.Repository, error) {
	u, err := url.Parse(mirror)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return name.Repository{}, invalid("mirror %.200q: want http(s)://HOST[:PORT][/PREFIX]", mirror)
	}
	var options []name.Option
	if u.Scheme == "http" {
		options = append(options, name.Insecure)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	repo, err := name.NewRepository(u.Host+"/"+prefix+repository, options...)
	if err != nil {
		return name.Repository{}, invalid("mirror %.200q: %w", mirror, err)
	}
	return repo, nil
}

// endpoints returns the mirrors of a repository in their order, and then the repository itself.
func (p Pull) endpoints(ctx context.Context, repo name.Repository) ([]*endpoint, error) {
	keychain := p.Keychain
	if keychain == nil {
		keychain = authn.DefaultKeychain
	}
	var all []*endpoint
	for _, m := range p.Mirrors {
		in, err := mirrorOf(m, repo.RepositoryStr())
		if err != nil {
			return nil, err
		}
		all = append(all, &endpoint{repo: in, mirror: true})
	}
	all = append(all, &endpoint{repo: repo})
	for _, e := range all {
		auth, err := authn.Resolve(ctx, keychain, e.repo)
		if err != nil {
			return nil, fmt.Errorf("read credentials for %s: %w", e.repo.RegistryStr(), err)
		}
		e.auth = auth
	}
	return all, nil
}

// connect authenticates once.
func (e *endpoint) connect(ctx context.Context) (*http.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		return e.client, nil
	}
	base := newTransport(e.repo.RegistryStr())
	scopes := []string{e.repo.Scope(transport.PullScope)}
	t, err := transport.NewWithContext(ctx, e.repo.Registry, e.auth, base, scopes)
	if err != nil {
		base.CloseIdleConnections()
		return nil, failure(err)
	}
	e.client = &http.Client{Transport: t, CheckRedirect: checkRedirect}
	return e.client, nil
}

// do sends a request, for a range of bytes or for all. A status other than 200 and 206 is an error.
func (e *endpoint) do(ctx context.Context, kind, id, bytes string) (*http.Response, error) {
	client, err := e.connect(ctx)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: e.repo.Scheme(), Host: e.repo.RegistryStr(),
		Path: "/v2/" + e.repo.RepositoryStr() + "/" + kind + "/" + id}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if kind != "blobs" {
		req.Header.Set("Accept", manifestTypes)
	}
	// Otherwise Go's client unpacks a compressed answer, and a range counts other bytes.
	req.Header.Set("Accept-Encoding", "identity")
	if bytes != "" {
		req.Header.Set("Range", "bytes="+bytes)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, failure(err)
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusPartialContent {
		return nil, statusError(res)
	}
	return res, nil
}

// origin returns the registry itself.
func (r *registry) origin() *endpoint { return r.endpoints[len(r.endpoints)-1] }

// do sends a request to the first endpoint that answers it. A mirror without the object is asked for others; a
// mirror that fails in another way is not asked again.
func (r *registry) do(ctx context.Context, kind, id, bytes string) (*http.Response, *endpoint, error) {
	for _, e := range r.endpoints {
		if e.failed.Load() {
			continue
		}
		res, err := e.do(ctx, kind, id, bytes)
		if err == nil || !e.mirror {
			return res, e, err
		}
		if ctx.Err() != nil {
			return nil, e, context.Cause(ctx)
		}
		e.failed.Store(!errors.Is(err, ErrNotFound))
	}
	return nil, nil, errors.New("a repository without a registry") // the last endpoint never fails for good
}

// distrust stops the use of a mirror whose answer was broken or wrong, and returns an error after which the request
// is repeated at the next endpoint. For the registry itself it returns the error as it is.
func (e *endpoint) distrust(err error) error {
	if err == nil || e == nil || !e.mirror {
		return err
	}
	e.failed.Store(true)
	return &temporary{fmt.Errorf("mirror %s: %w", e.repo.RegistryStr(), err), 0}
}

// dropMirrors stops the use of all mirrors, because a blob was wrong and its parts can be of any of them. It reports
// whether the repository has mirrors.
func (r *registry) dropMirrors() bool {
	for _, e := range r.endpoints {
		e.failed.Store(e.mirror)
	}
	return len(r.endpoints) > 1
}
