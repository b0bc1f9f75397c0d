package volumefiles

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
)

// Grant is the content of a token: a volume, and the key that asked for the token.
type Grant struct {
	Volume string `json:"v"` // id
	Tenant string `json:"t,omitempty"`
	KeyID  string `json:"k,omitempty"`
}

// Tokens makes and checks the tokens for files of volumes. Those of an earlier daemon are not valid.
type Tokens struct{ secret [32]byte }

// NewTokens returns Tokens with a new secret.
func NewTokens() *Tokens {
	t := &Tokens{}
	_, _ = rand.Read(t.secret[:]) // never fails
	return t
}

// ErrToken is the error of a token that this daemon did not make.
var ErrToken = errors.New("the token of the volume is not valid: connect to the volume again")

const (
	prefix   = "vt_"
	maxToken = 1024
)

// Make returns the token of a grant.
func (t *Tokens) Make(g Grant) string {
	b, _ := json.Marshal(g) // strings only
	body := base64.RawURLEncoding.EncodeToString(b)
	return prefix + body + "." + t.sum(body)
}

func (t *Tokens) sum(body string) string {
	mac := hmac.New(sha256.New, t.secret[:])
	mac.Write([]byte("token of a volume\n" + body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Parse returns the grant of a token.
func (t *Tokens) Parse(token string) (g Grant, err error) {
	rest, ours := strings.CutPrefix(token, prefix)
	body, sum, whole := strings.Cut(rest, ".")
	if !ours || !whole || len(token) > maxToken || !hmac.Equal([]byte(sum), []byte(t.sum(body))) {
		return Grant{}, ErrToken
	}
	b, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(b, &g) != nil {
		return Grant{}, ErrToken
	}
	return g, nil
}
