package s3sign

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Signer signs the requests of a grant.
type Signer struct {
	grant Grant
	now   func() time.Time
}

// New returns a Signer. now is the host's clock.
func New(g Grant, now func() time.Time) *Signer { return &Signer{grant: g, now: now} }

// Sign returns the request to send in place of a guest's, which it leaves unchanged apart from its body. The error is a
// Refusal.
func (s *Signer) Sign(r *http.Request) (*http.Request, error) {
	g := &s.grant
	if g.Missing != "" {
		return nil, &Refusal{http.StatusForbidden, "AccessDenied", "forkd signs requests to this host, and refuses them " +
			"without the keys: " + g.Missing}
	}
	t, q, copied, err := g.judge(r)
	if err != nil {
		return nil, err
	}
	h, err := passed(r.Header)
	if err != nil {
		return nil, denied(err)
	}
	if copied != "" {
		h.Set("X-Amz-Copy-Source", copied)
	}
	p, err := payloadOf(r, h)
	switch {
	case errors.Is(err, errLength):
		return nil, &Refusal{http.StatusLengthRequired, "MissingContentLength", err.Error()}
	case err != nil:
		return nil, invalid(err)
	case p.length > 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodDelete):
		return nil, invalid(fmt.Errorf("a %s request has no body", r.Method))
	}
	path := t.path(g.HostBucket)
	out := &http.Request{
		Method: r.Method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: g.Host, Header: h, Body: p.body,
		ContentLength: p.length,
		URL: &url.URL{Scheme: "https", Host: g.Host, Path: path, RawPath: escape(path),
			RawQuery: strings.ReplaceAll(q.Encode(), "+", "%20")},
	}
	return out, s.authorize(out, p.hash)
}

// judge returns the judged parts of a request: the object, the query and the source of a copy.
func (g *Grant) judge(r *http.Request) (t target, q url.Values, copied string, err error) {
	if t, err = parsePath(r.URL.EscapedPath(), g.HostBucket); err != nil {
		return t, nil, "", invalid(err)
	}
	if q, err = parseQuery(r.URL.RawQuery); err != nil {
		return t, nil, "", invalid(err)
	}
	// Before the operation, which may be unknown: an error must not show more than the policy.
	if err = g.hasBucket(t.bucket, false, false); err != nil {
		return t, nil, "", denied(err)
	}
	o, err := operationOf(r.Method, t, q)
	if err != nil {
		return t, nil, "", denied(err)
	}
	if err = g.check(o, t, q); err != nil {
		return t, nil, "", denied(err)
	}
	sources := r.Header.Values("X-Amz-Copy-Source")
	switch {
	case len(sources) == 0:
		return t, q, "", nil
	case len(sources) > 1 || !o.copies:
		return t, nil, "", invalid(errors.New("x-amz-copy-source does not belong to this request"))
	}
	source, copied, err := copySource(sources[0])
	if err != nil {
		return t, nil, "", invalid(err)
	}
	if err = g.allows(source.bucket, source.key, false); err != nil {
		return t, nil, "", denied(fmt.Errorf("x-amz-copy-source: %w", err))
	}
	return t, q, copied, nil
}

// authorize signs the headers that decide about a request. Others may be changed on the way.
func (s *Signer) authorize(out *http.Request, hash string) error {
	out.Header.Set(hashHeader, hash)
	judged := http.Header{}
	for name, values := range out.Header {
		if strings.HasPrefix(name, "X-Amz-") || name == "Content-Type" || name == "Content-Md5" || name == "Range" {
			judged[name] = values
		}
	}
	copy := *out
	copy.Header, copy.Body = judged, nil
	u := *out.URL
	copy.URL = &u
	keys := aws.Credentials{
		AccessKeyID: s.grant.Keys.AccessKeyID, SecretAccessKey: s.grant.Keys.SecretAccessKey,
		SessionToken: s.grant.Keys.SessionToken,
	}
	// The library's signer remembers a derived key by the key's ID alone. With one signer for all, a rotated secret
	// would have no effect, and tenants could use each other's keys.
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(out.Context(), keys, &copy, hash, "s3", s.grant.Region, s.now()); err != nil {
		return &Refusal{http.StatusInternalServerError, "InternalError", "the request cannot be signed"}
	}
	out.URL.RawQuery = u.RawQuery
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		if v := judged.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	return nil
}

// Secrets returns the texts to hide in the headers of answers.
func (s *Signer) Secrets() []string {
	return []string{s.grant.Keys.SecretAccessKey, s.grant.Keys.SessionToken}
}
