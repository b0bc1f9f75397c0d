package files

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// authorize checks a /files request against the sandbox's token: the header if it is set, otherwise
// the signature of the URL. The error texts are E2B's.
func authorize(r *http.Request, op, token string, now time.Time) error {
	if token == "" {
		return nil
	}
	if shown := r.Header.Get("X-Access-Token"); shown != "" {
		if subtle.ConstantTimeCompare([]byte(shown), []byte(token)) != 1 {
			return errors.New("access token present in header but does not match")
		}
		return nil
	}
	q := r.URL.Query()
	if q.Get("signature") == "" {
		return errors.New("missing signature query parameter")
	}
	expires := q.Get("signature_expiration")
	want := sign(q.Get("path"), op, q.Get("username"), token, expires)
	if subtle.ConstantTimeCompare([]byte(q.Get("signature")), []byte(want)) != 1 {
		return errors.New("invalid signature")
	}
	if expires == "" {
		return nil
	}
	at, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || now.Unix() > at {
		return errors.New("signature is already expired")
	}
	return nil
}

// sign returns the signature of a URL. expires is empty or seconds since 1970.
func sign(path, op, user, token, expires string) string {
	s := path + ":" + op + ":" + user + ":" + token
	if expires != "" {
		s += ":" + expires
	}
	sum := sha256.Sum256([]byte(s))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
