package idtoken

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Limits of a token's lifetime.
const (
	DefaultLifetime = 10 * time.Minute
	MinLifetime     = time.Minute
	MaxLifetime     = time.Hour
)

// skew is the time by which a relying party's clock may be late without an error about nbf.
const skew = time.Minute

// Paths of the two documents, relative to the issuer's URL.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/.well-known/jwks.json"
)

// Config configures an Issuer.
type Config struct {
	URL      string        // the iss claim, checked by CheckURL
	Lifetime time.Duration // of a token
	Dir      string        // holds the keys; it is made if it is missing
	// Audiences lists the audiences that tokens may have. If empty, they may have any.
	Audiences []string
	Now       func() time.Time
	Log       *slog.Logger
}

// Issuer signs tokens. It is safe for concurrent use.
type Issuer struct {
	cfg  Config
	keys *keyRing
	// turns bounds the CPUs that sign at the same time.
	turns chan struct{}
}

var _ sandbox.IdentityIssuer = (*Issuer)(nil)

// CheckURL returns an error if an issuer cannot have the URL. Relying parties compare it byte by byte.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return fmt.Errorf("%q: want https://HOST, as services fetch the keys there (http:// only for this host)", text)
	case u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return fmt.Errorf("%q: want https://HOST[:PORT][/PATH], without a user, a query or a fragment", text)
	case strings.HasSuffix(text, "/"):
		return fmt.Errorf("%q ends with a slash: remove it", text)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// CheckLifetime returns an error if tokens cannot have the lifetime.
func CheckLifetime(d time.Duration) error {
	if d < MinLifetime || d > MaxLifetime {
		return fmt.Errorf("is %s, want %s to %s", d, MinLifetime, MaxLifetime)
	}
	return nil
}

// Open opens an issuer. It makes the first key if the directory has none.
func Open(c Config) (*Issuer, error) {
	if err := errors.Join(CheckURL(c.URL), CheckLifetime(c.Lifetime)); err != nil {
		return nil, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	keys, err := openKeys(c.Dir, c.Now, c.Log)
	if err != nil {
		return nil, err
	}
	return &Issuer{cfg: c, keys: keys, turns: make(chan struct{}, max(1, runtime.NumCPU()/2))}, nil
}

// Mint implements sandbox.IdentityIssuer.
func (s *Issuer) Mint(of sandbox.Info, audience string) (sandbox.IdentityToken, error) {
	if err := checkAudience(audience); err != nil {
		return sandbox.IdentityToken{}, err
	}
	if len(s.cfg.Audiences) > 0 && !slices.Contains(s.cfg.Audiences, audience) {
		return sandbox.IdentityToken{}, sandbox.Errorf(sandbox.ErrForbidden, "",
			"this daemon issues no tokens for audience %s: its operator has not allowed it", audience)
	}
	now := s.cfg.Now().Truncate(time.Second) // the unit of the claims
	c := about(of)
	c.Issuer, c.Audience, c.ID = s.cfg.URL, jwt.Audience{audience}, newTokenID()
	c.IssuedAt, c.NotBefore = jwt.NewNumericDate(now), jwt.NewNumericDate(now.Add(-skew))
	expires := now.Add(s.cfg.Lifetime)
	c.Expiry = jwt.NewNumericDate(expires)
	s.turns <- struct{}{}
	defer func() { <-s.turns }()
	text, err := jwt.Signed(s.keys.signer()).Claims(c).Serialize()
	if err != nil {
		return sandbox.IdentityToken{}, fmt.Errorf("sign identity token: %w", err)
	}
	return sandbox.IdentityToken{Text: text, Expires: expires}, nil
}

func newTokenID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Discovery is the content of DiscoveryPath.
type Discovery struct {
	Issuer        string   `json:"issuer"`
	Keys          string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Claims        []string `json:"claims_supported"`
}

// Discovery returns the discovery document.
func (s *Issuer) Discovery() Discovery {
	return Discovery{
		Issuer: s.cfg.URL, Keys: s.cfg.URL + KeysPath, ResponseTypes: []string{"id_token"},
		SubjectTypes: []string{"public"}, Algorithms: []string{string(algorithm)},
		Claims: []string{"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "tenant", "sandbox", "snapshot",
			"snapshot_digest", "parent", "fork_index"},
	}
}

// KeySet returns the public keys of all tokens that may still be valid.
func (s *Issuer) KeySet() jose.JSONWebKeySet { return s.keys.public() }
