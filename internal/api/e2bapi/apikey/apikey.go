// Package apikey makes E2B's form of a key of a daemon's token: their clients insist on a
// prefix and hex digits. Who has the token has the key, and not the other way round.
package apikey

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"regexp"
)

// form is a key's.
var form = regexp.MustCompile(`^e2b_[0-9a-f]{40}$`)

// Of is the key of a token; empty if there is none. What has a key's form, as tenants' keys do, is one.
func Of(token string) string {
	if token == "" || form.MatchString(token) {
		return token
	}
	sum := sha256.Sum256([]byte("forkd: E2B's form of the daemon's token\n" + token))
	return "e2b_" + hex.EncodeToString(sum[:20])
}

// Matches reports whether what a client shows is a token, or its key.
func Matches(shown, token string) bool {
	if token == "" || shown == "" {
		return false
	}
	return same(shown, token) || same(shown, Of(token))
}

// same compares digests, so that neither content nor length shows in the time it takes.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
