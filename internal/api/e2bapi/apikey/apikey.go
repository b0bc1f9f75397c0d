// Package apikey converts a daemon's token to the form of an E2B key. E2B's clients require a
// prefix and hex digits. The key can be computed from the token, but not the token from the key.
package apikey

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"regexp"
)

// form matches a key.
var form = regexp.MustCompile(`^e2b_[0-9a-f]{40}$`)

// Of returns the key of a token, or "" for an empty token. A text in the form of a key, such as a
// tenant's key, is returned unchanged.
func Of(token string) string {
	if token == "" || form.MatchString(token) {
		return token
	}
	sum := sha256.Sum256([]byte("forkd: E2B's form of the daemon's token\n" + token))
	return "e2b_" + hex.EncodeToString(sum[:20])
}

// Matches reports whether a client shows the token or its key.
func Matches(shown, token string) bool {
	if token == "" || shown == "" {
		return false
	}
	return same(shown, token) || same(shown, Of(token))
}

// same compares digests, to make the time independent of content and length.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
