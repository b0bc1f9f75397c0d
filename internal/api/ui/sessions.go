package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Limits of sessions.
const (
	lifetime = 12 * time.Hour
	maxAll   = 4096
	maxOfOne = 16 // of one credential, so that one client cannot displace the sessions of others
)

// HeaderProof is the header with the second secret of a session.
const HeaderProof = "X-Forkd-UI"

// Names of the cookie. Browsers accept the prefix only over TLS, and then no other host can set it.
const (
	cookieName   = "forkd-ui"
	cookieSecure = "__Host-forkd-ui"
)

// Sessions are the sessions of a server. They are in memory and end with it. The zero value has
// none. Its methods are safe for concurrent use.
type Sessions struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]session // by the digest of the cookie
	now func() time.Time              // if nil, time.Now
}

type session struct {
	proof      [sha256.Size]byte
	credential string
	made       time.Time
}

// start makes a session for a credential and returns its two secrets.
func (s *Sessions) start(credential string) (cookie, proof string) {
	cookie, proof = secret(), secret()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[[sha256.Size]byte]session{}
	}
	s.makeRoom(credential)
	s.all[sha256.Sum256([]byte(cookie))] = session{sha256.Sum256([]byte(proof)), credential, s.time()}
	return cookie, proof
}

// makeRoom removes ended sessions, and the oldest ones beyond the limits.
func (s *Sessions) makeRoom(credential string) {
	var oldest, oldestOwn [sha256.Size]byte
	var first, firstOwn time.Time
	own := 0
	for id, o := range s.all {
		if s.ended(o) {
			delete(s.all, id)
			continue
		}
		if first.IsZero() || o.made.Before(first) {
			oldest, first = id, o.made
		}
		if o.credential != credential {
			continue
		}
		if own++; firstOwn.IsZero() || o.made.Before(firstOwn) {
			oldestOwn, firstOwn = id, o.made
		}
	}
	switch {
	case own >= maxOfOne:
		delete(s.all, oldestOwn)
	case len(s.all) >= maxAll:
		delete(s.all, oldest)
	}
}

func (s *Sessions) time() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

func (s *Sessions) ended(o session) bool { return s.time().Sub(o.made) >= lifetime }

// find returns the credential of the session with both secrets.
func (s *Sessions) find(cookie, proof string) (credential string, ok bool) {
	s.mu.Lock()
	o, found := s.all[sha256.Sum256([]byte(cookie))]
	s.mu.Unlock()
	shown := sha256.Sum256([]byte(proof))
	if !found || s.ended(o) || subtle.ConstantTimeCompare(shown[:], o.proof[:]) != 1 {
		return "", false
	}
	return o.credential, true
}

func (s *Sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, sha256.Sum256([]byte(cookie)))
}

// Shown is the session that a request shows.
type Shown struct {
	// Credential is that of the login. It is empty if the request shows no valid session.
	Credential string
	cookie     string
}

// Take removes a session's secrets from a request, so that they reach neither guests nor logs, and
// returns the session. A request from a page of another origin has none.
func (s *Sessions) Take(r *http.Request) (out Shown) {
	proof := r.Header.Get(HeaderProof)
	r.Header.Del(HeaderProof)
	out.cookie = takeCookie(r)
	if out.cookie == "" || proof == "" || !sameOrigin(r) {
		return out
	}
	out.Credential, _ = s.find(out.cookie, proof)
	return out
}

// takeCookie removes the cookie of the session and returns its value. Other cookies stay.
func takeCookie(r *http.Request) (value string) {
	all := r.Cookies()
	found := false
	for _, c := range all {
		found = found || c.Name == cookieName || c.Name == cookieSecure
	}
	if !found {
		return ""
	}
	r.Header.Del("Cookie")
	for _, c := range all {
		switch {
		case c.Name != cookieName && c.Name != cookieSecure:
			r.AddCookie(c)
		case value == "" || c.Name == cookieSecure: // no other host can have set this one
			value = c.Value
		}
	}
	return value
}

// sameOrigin reports whether a request is not from a page of another origin. Programs send neither
// header.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

// secret returns 256 random bits.
func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
