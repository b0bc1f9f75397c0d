package filesign

import (
	"errors"
	"net/url"
	"testing"
	"time"
)

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

// The vector comes from E2B's own tests.
func TestTheSignatureIsE2Bs(t *testing.T) {
	if got := Sign("hello.txt", Read, "user", token, ""); got != "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E" {
		t.Errorf("got %s", got)
	}
}

func TestCheck(t *testing.T) {
	now := time.Unix(1000, 0)
	signed := func(expires string) url.Values {
		return url.Values{"path": {"a b"}, "username": {"user"}, "signature_expiration": {expires},
			"signature": {Sign("a b", Write, "user", token, expires)}}
	}
	other := signed("")
	other.Set("path", "a c")
	late := signed("900")
	late.Set("signature_expiration", "2000")
	for name, c := range map[string]struct {
		q    url.Values
		op   Op
		want error
	}{
		"right":                    {signed(""), Write, nil},
		"for reading":              {signed(""), Read, ErrWrong},
		"none":                     {url.Values{}, Read, ErrMissing},
		"another path":             {other, Write, ErrWrong},
		"in time":                  {signed("1000"), Write, nil},
		"too late":                 {signed("999"), Write, ErrExpired},
		"no number":                {signed("soon"), Write, ErrExpired},
		"its expiration was moved": {late, Write, ErrWrong},
	} {
		if err := Check(c.q, c.op, token, now); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("path=a&signature=v1_x&signature_expiration=1", token)
	f.Fuzz(func(t *testing.T, query, token string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if Check(q, Read, token, time.Unix(0, 0)) == nil && q.Get("signature") == "" {
			t.Error("no signature is right")
		}
	})
}
