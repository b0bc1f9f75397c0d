package ecr

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Any answer gives a login that can be in a header, or an error without the answer's texts.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "", []byte(`{"authorizationData":[{"authorizationToken":"QVdTOnBhc3N3b3Jk","expiresAt":4102444800.5}]}`))
	f.Add(200, "", []byte(`{"authorizationData":[{"authorizationToken":"QVdT"}]}`))
	f.Add(400, "", []byte(`{"__type":"a#InvalidSignatureException","message":"Signature expired"}`))
	f.Add(403, "AccessDeniedException:http://x/", []byte(`{`))
	f.Add(302, "", []byte(nil))
	f.Fuzz(func(t *testing.T, status int, header string, body []byte) {
		if status != http.StatusOK {
			if err := refusal(status, header, body); err == nil || len(err.Error()) > 400 || !clean(err.Error()) {
				t.Errorf("%q", err)
			}
			return
		}
		l, err := parse(body, time.Unix(1<<30, 0))
		switch {
		case err != nil:
			if l != (Login{}) || !clean(err.Error()) {
				t.Errorf("%+v, %q", l, err)
			}
		case l.Username == "" || l.Password == "" || strings.Contains(l.Username, ":") || !clean(l.Username+l.Password):
			t.Errorf("%+v", l)
		}
	})
}

// clean reports whether a text is one line of printable ASCII.
func clean(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Any region that is accepted is one label of a host.
func FuzzRegion(f *testing.F) {
	for _, s := range []string{"eu-west-1", "us-gov-east-1", "cn-north-1", "a.b", "eu-west-1@x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, region string) {
		host, err := apiHost(region)
		if err != nil {
			return
		}
		rest, ok := strings.CutPrefix(host, "api.ecr."+region+".")
		if !ok || rest != "amazonaws.com" && rest != "amazonaws.com.cn" || strings.Trim(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q: %q", region, host)
		}
	})
}
