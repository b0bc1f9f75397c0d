package router

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func FuzzHeaders(f *testing.F) {
	f.Add("sb-aaaaaaaaaaaaaaaaaaaaa", "team-a", "8888", "1.5", "u-1", "/execute")
	f.Add("../x", "", "0", "NaN", " ", "/download/%2e%2e%2fx")
	f.Fuzz(func(t *testing.T, id, ns, port, timeout, uid, path string) {
		h := http.Header{}
		for k, v := range map[string]string{headerID: id, headerNamespace: ns, headerPort: port, headerTimeout: timeout,
			headerUID: uid} {
			h.Set(k, v)
		}
		to, n, limit, err := parse(h)
		if err == nil && (n == 0 || limit <= 0 || limit > 24*time.Hour || strings.ContainsAny(to.name+to.namespace+to.uid,
			"/=&? \n")) {
			t.Errorf("%v is accepted as %+v, port %d, %s", h, to, n, limit)
		}
		if u, err := url.ParseRequestURI(path); err == nil {
			_ = runtimeCall(&http.Request{Method: http.MethodGet, URL: u})
		}
	})
}
