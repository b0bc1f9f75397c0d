// Package filesign checks the signatures of URLs for files in sandboxes, as E2B's clients make
// them. It stores no tokens: the caller passes the possible tokens of a URL.
package filesign

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"hash"
	"io"
	"net/url"
	"strconv"
	"time"
)

// Op is the operation of a signed URL.
type Op string

// Operations.
const (
	Read  Op = "read"
	Write Op = "write"
)

// Errors of Check. Their texts are E2B's, which clients parse.
var (
	ErrMissing = errors.New("missing signature query parameter")
	ErrWrong   = errors.New("invalid signature")
	ErrExpired = errors.New("signature is already expired")
)

// Sign returns the signature of a path and a user for the query. expires is empty, or seconds since
// 1970.
func Sign(path string, op Op, user, token, expires string) string {
	s := path + ":" + string(op) + ":" + user + ":" + token
	if expires != "" {
		s += ":" + expires
	}
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// maxPath limits the length of a signed path plus its user: Linux's PATH_MAX, and space for a name.
const maxPath = 4096 + 256

// Verifier checks one URL against many tokens. It hashes the path once, so that the cost per token
// does not depend on the URL's length.
type Verifier struct {
	prefix             hash.Cloner
	signature, expires string
}

// NewVerifier reads a URL's query. It returns an error for a query no token can have signed.
func NewVerifier(q url.Values, op Op) (*Verifier, error) {
	v := &Verifier{signature: q.Get("signature"), expires: q.Get("signature_expiration")}
	path, user := q.Get("path"), q.Get("username")
	switch {
	case v.signature == "":
		return nil, ErrMissing
	case len(v.signature) != len("v1_")+base64.RawStdEncoding.EncodedLen(sha256.Size),
		len(path)+len(user) > maxPath, len(v.expires) > 20:
		return nil, ErrWrong
	}
	v.prefix = sha256.New().(hash.Cloner)
	_, _ = io.WriteString(v.prefix, path+":"+string(op)+":"+user+":")
	return v, nil
}

// Signed reports whether a token signed the URL. It does not check the expiry.
func (v *Verifier) Signed(token string) bool {
	h, err := v.prefix.Clone()
	if err != nil {
		return false
	}
	if v.expires != "" {
		token += ":" + v.expires
	}
	_, _ = io.WriteString(h, token)
	var sum [sha256.Size]byte
	want := "v1_" + base64.RawStdEncoding.EncodeToString(h.Sum(sum[:0]))
	return subtle.ConstantTimeCompare([]byte(v.signature), []byte(want)) == 1
}

// Expired returns ErrExpired for an expired URL.
func (v *Verifier) Expired(now time.Time) error {
	if v.expires == "" {
		return nil
	}
	if at, err := strconv.ParseInt(v.expires, 10, 64); err != nil || now.Unix() > at {
		return ErrExpired
	}
	return nil
}

// Check checks a URL's query. It reports the expiry only for a URL signed with the token.
func Check(q url.Values, op Op, token string, now time.Time) error {
	v, err := NewVerifier(q, op)
	if err != nil {
		return err
	}
	if !v.Signed(token) {
		return ErrWrong
	}
	return v.Expired(now)
}
