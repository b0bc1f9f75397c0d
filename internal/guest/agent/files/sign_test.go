package files

import (
	"net/http"
	"net/url"
	"testing"
	"time"
)

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"

func TestSignature(t *testing.T) {
	if got := sign("hello.txt", "read", "user", token, ""); got != "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E" {
		t.Errorf("got %s", got)
	}
}

func TestAuthorize(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		name, header, user, expires, sig, want string
	}{
		{"the header is enough", token, "", "", "", ""},
		{"a wrong header is not", "x", "", "", "", "access token present in header but does not match"},
		{"nothing at all", "", "", "", "", "missing signature query parameter"},
		{"a wrong signature", "", "", "", "v1_x", "invalid signature"},
		{"a good one", "", "", "", sign("p", "read", "", token, ""), ""},
		{"one of another user", "", "u", "", sign("p", "read", "", token, ""), "invalid signature"},
		{"one for writing", "", "", "", sign("p", "write", "", token, ""), "invalid signature"},
		{"one that holds still", "", "", "1000", sign("p", "read", "", token, "1000"), ""},
		{"one that is over", "", "", "999", sign("p", "read", "", token, "999"), "signature is already expired"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := url.Values{"path": {"p"}}
			for k, v := range map[string]string{"username": tc.user, "signature": tc.sig, "signature_expiration": tc.expires} {
				if v != "" {
					q.Set(k, v)
				}
			}
			r := &http.Request{URL: &url.URL{RawQuery: q.Encode()}, Header: http.Header{}}
			if tc.header != "" {
				r.Header.Set("X-Access-Token", tc.header)
			}
			got := ""
			if err := authorize(r, "read", token, now); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
