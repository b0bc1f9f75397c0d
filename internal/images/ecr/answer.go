package ecr

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// maxAnswer is the most that is read of an answer, in bytes.
const maxAnswer = 64 << 10

// Login is a name and a password for a registry.
type Login struct{ Username, Password string }

// errBroken has no text of the answer, which may have the password.
var errBroken = errors.New("the answer is not that of ECR")

// parse reads an answer with status 200. A password without a time is taken as valid.
func parse(b []byte, now time.Time) (Login, error) {
	var a struct {
		Data []struct {
			Token   string  `json:"authorizationToken"`
			Expires float64 `json:"expiresAt"` // seconds since 1970
		} `json:"authorizationData"`
	}
	if len(b) > maxAnswer || json.Unmarshal(b, &a) != nil || len(a.Data) == 0 {
		return Login{}, errBroken
	}
	plain, err := base64.StdEncoding.DecodeString(a.Data[0].Token)
	if err != nil {
		return Login{}, errBroken
	}
	name, password, ok := strings.Cut(string(plain), ":")
	if !ok || name == "" || password == "" || !printable(name) || !printable(password) {
		return Login{}, errBroken
	}
	if expires := a.Data[0].Expires; expires != 0 && expires <= float64(now.Unix()) {
		return Login{}, errors.New("the password of the answer has expired already: the operator should compare this " +
			"server's clock")
	}
	return Login{name, password}, nil
}

// printable reports whether a text has only printable ASCII.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
