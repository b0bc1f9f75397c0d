// Package auth authenticates requests: by the daemon's token, a key, or the peer of a Unix socket. It passes the
// principal on in the request's context, and ends the context with the request's keys. Routes decide what a principal
// may do (the scopes in routing), and package tenancy what it sees.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/requestinfo"
	"github.com/forkd/forkd/internal/api/respond"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// Access decides which clients a listener admits.
type Access struct {
	// Token admits every client with this token. If empty, the daemon has no token.
	Token string
	// Local is set for a Unix socket: root and the daemon's own user need no token.
	Local bool
	// Group is the group whose members need no token on a Unix socket. If nil, there is none.
	Group *uint32
	// Encrypted is set if the listener's connections are. Cookies are then for such connections only.
	Encrypted bool
	// Keys admit clients with one of these keys. If nil, there are no keys.
	Keys *keys.Store
	// Alias reports whether a text is equivalent to the token. If nil, no text is.
	Alias func(shown string) bool
}

// CheckToken refuses unsafe tokens: tokens from an example, and short ones.
func CheckToken(token string) error {
	for _, prefix := range []string{"REPLACE_ME_", "CHANGE_ME_"} {
		if strings.HasPrefix(token, prefix) {
			return fmt.Errorf("token begins with %s: it is an example's, replace it", prefix)
		}
	}
	if len(token) < api.MinTokenBytes {
		return fmt.Errorf("token has %d bytes, want at least %d", len(token), api.MinTokenBytes)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("token has invalid characters for a header: want printable ASCII without spaces")
	}
	return nil
}

// probes are the paths without authentication, for load balancers and supervisors.
var probes = []string{"/healthz", "/readyz"}

// Authenticator authenticates the requests of one daemon.
type Authenticator struct {
	Askers Askers
	// Charge charges the body of a request to a tenant before it is read.
	Charge func(r *http.Request, tenant string) error
}

// For returns a function to authenticate the requests of a kind of listener. The returned context has the
// principal, and ends with the keys of the request.
func (a Authenticator) For(access Access) func(*http.Request) (context.Context, error) {
	right := tokenCheck(access.Token)
	if also, token := access.Alias, right; also != nil {
		right = func(shown string) bool { return token(shown) || also(shown) }
	}
	return func(r *http.Request) (context.Context, error) {
		who, refusal := access.admit(r, right)
		if refusal != nil && refusal.Code != api.CodeQuota { // a key over its rate has proved its identity
			return nil, refusal
		}
		ctx, n := principal.With(r.Context(), who), requestinfo.From(r.Context())
		n.Principal, n.Asker = labelOf(who), a.Askers.Of(ctx)
		if refusal != nil {
			return nil, refusal
		}
		if err := a.Charge(r, who.Tenant); err != nil {
			return nil, apierror.From(err) // it has a status for handlers of other APIs
		}
		if who.KeyID == "" {
			return ctx, nil
		}
		return bindKeys(ctx, r, access.Keys, n.Control), nil
	}
}

// Require passes requests that authenticate admits, and probes.
func Require(authenticate func(*http.Request) (context.Context, error), answers respond.Answers,
	next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := authenticate(r)
		if err != nil && !slices.Contains(probes, r.URL.Path) {
			f := apierror.From(err)
			if f.GetStatus() == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="forkd"`)
			}
			respond.Error(w, answers.Failed(r.Context(), f))
			return
		}
		if err == nil {
			*r = *r.WithContext(ctx) // in place: outer handlers read the route's pattern from this request
		}
		next.ServeHTTP(w, r)
	})
}

// labelOf returns the audit log's name of a principal.
func labelOf(p principal.Principal) string {
	if p.KeyID != "" {
		return "key " + p.KeyID
	}
	return p.Name
}

// admit returns the identity of a client, or a refusal. A token in a request must be right, even if
// the listener does not require one: its sender expects a check.
func (a Access) admit(r *http.Request, right func(string) bool) (who principal.Principal, refusal *apierror.Error) {
	bearers, keys := r.Header.Values("Authorization"), r.Header.Values(api.HeaderKey)
	switch {
	case len(bearers) > 1 || len(keys) > 1:
		return who, apierror.New(api.CodeUnauthorized, "", "the request has more than one token")
	case len(bearers) == 0 && len(keys) == 0, len(bearers) == 1 && bearers[0] == "" && len(keys) == 0:
		return a.admitSilent(r)
	}
	for _, header := range bearers {
		token, isToken := Bearer(header)
		if !isToken {
			return who, a.wantsToken()
		}
		if who, refusal = a.admitToken(token, right); refusal != nil {
			return who, refusal
		}
	}
	for _, key := range keys {
		other, refusal := a.admitToken(key, right)
		if refusal == nil && len(bearers) > 0 && other != who {
			refusal = apierror.New(api.CodeUnauthorized, "", "the request has two tokens of different clients")
		}
		if who = other; refusal != nil {
			return who, refusal
		}
	}
	if wait, ok := a.rate(who); !ok {
		f := apierror.New(api.CodeQuota, api.ReasonQuota, "rate limit exceeded for this key")
		f.Details = map[string]string{"quota": "requests_per_second"}
		return who, f.WithRetry(wait)
	}
	return who, nil
}

// admitSilent admits a client without a credential.
func (a Access) admitSilent(r *http.Request) (who principal.Principal, _ *apierror.Error) {
	switch {
	case a.Local && trustedPeer(r):
		return principal.Principal{Name: "local"}, nil
	case a.Local && a.Token == "":
		return who, apierror.New(api.CodeForbidden, api.ReasonSocketForeign,
			"the daemon's socket belongs to another user, and the daemon has no token")
	}
	return who, apierror.New(api.CodeUnauthorized, "", "the daemon requires a token (Authorization: Bearer)")
}

func (a Access) wantsToken() *apierror.Error {
	if a.Token == "" && a.Keys == nil {
		return apierror.New(api.CodeUnauthorized, api.ReasonTokenUnwanted,
			"the request has a token, but this daemon has none")
	}
	return apierror.New(api.CodeUnauthorized, "", "the daemon requires a token (Authorization: Bearer)")
}

// admitToken admits a client with the daemon's token or a key. Errors never contain the shown text.
func (a Access) admitToken(text string, right func(string) bool) (who principal.Principal, _ *apierror.Error) {
	if a.Keys != nil && keys.Looks(text) && !right(text) {
		if k, ok := a.Keys.Find(text); ok {
			return k.Principal(), nil
		}
		return who, apierror.New(api.CodeUnauthorized, "", "the key is unknown, revoked or expired")
	}
	switch {
	case right(text):
		return principal.Principal{Name: "token"}, nil
	case a.Token == "":
		return who, apierror.New(api.CodeUnauthorized, api.ReasonTokenUnwanted,
			"the request has a token, but this daemon has none")
	}
	return who, apierror.New(api.CodeUnauthorized, "", "the token is wrong")
}

func (a Access) rate(who principal.Principal) (time.Duration, bool) {
	if who.KeyID == "" {
		return 0, true
	}
	return a.Keys.Allow(who.KeyID)
}

// tokenCheck compares digests, to make the time independent of the token's content and length.
func tokenCheck(token string) func(string) bool {
	want := sha256.Sum256([]byte(token))
	return func(got string) bool {
		sum := sha256.Sum256([]byte(got))
		return token != "" && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
	}
}

// Bearer returns the token of an Authorization header. It returns false if the header has another scheme, or no token.
func Bearer(header string) (string, bool) {
	scheme, token, _ := strings.Cut(header, " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer") && token != ""
}
