// Package filesign checks the signatures of URLs for files in sandboxes, as E2B's clients make
// them. It keeps no tokens: it is shown those that a URL may have been signed with.
package filesign

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"time"
)

// Op is what a signed URL is for.
type Op string

// Operations.
const (
	Read  Op = "read"
	Write Op = "write"
)

// Errors of Check; their texts are E2B's, which clients read.
var (
	ErrMissing = errors.New("missing signature query parameter")
	ErrWrong   = errors.New("invalid signature")
	ErrExpired = errors.New("signature is already expired")
)

// Sign is the signature of a path and a user as the query has them. expires is empty, or
// seconds since 1970.
func Sign(path string, op Op, user, token, expires string) string {
	s := path + ":" + string(op) + ":" + user + ":" + token
	if expires != "" {
		s += ":" + expires
	}
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Check looks at a URL's query. That it has expired is said only of one that was signed with
// the token.
func Check(q url.Values, op Op, token string, now time.Time) error {
	signature, expires := q.Get("signature"), q.Get("signature_expiration")
	if signature == "" {
		return ErrMissing
	}
	want := Sign(q.Get("path"), op, q.Get("username"), token, expires)
	if subtle.ConstantTimeCompare([]byte(signature), []byte(want)) != 1 {
		return ErrWrong
	}
	if expires == "" {
		return nil
	}
	if at, err := strconv.ParseInt(expires, 10, 64); err != nil || now.Unix() > at {
		return ErrExpired
	}
	return nil
}
