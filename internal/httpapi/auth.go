package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/forkd/forkd/api"
)

// CheckToken refuses tokens that protect nothing: left over from an example,
// or too short.
func CheckToken(token string) error {
	for _, prefix := range []string{"REPLACE_ME_", "CHANGE_ME_"} {
		if strings.HasPrefix(token, prefix) {
			return fmt.Errorf("token begins with %s: it is an example's, replace it", prefix)
		}
	}
	if len(token) < api.MinTokenBytes {
		return fmt.Errorf("token has %d bytes, want at least %d", len(token), api.MinTokenBytes)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("token has characters that do not fit into a header: want printable ASCII without spaces")
	}
	return nil
}

// requireToken lets through what shows the token, and GET /healthz. Digests
// are compared, so that neither content nor length shows in the time it takes.
func (s *Server) requireToken(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, ok := bearer(r)
		sum := sha256.Sum256([]byte(got))
		switch {
		case ok && subtle.ConstantTimeCompare(sum[:], want[:]) == 1:
			note(r.Context()).principal = "token"
		case r.URL.Path == "/healthz":
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="forkd"`)
			s.writeFailure(w, s.failed(r.Context(), unauthorized(ok)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func bearer(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer") && token != ""
}

func unauthorized(shown bool) *failure {
	hint := "set FORKD_TOKEN, or pass --token, with the content of the daemon's token file"
	if shown {
		return fail(api.CodeUnauthorized, hint, "the token is wrong")
	}
	return fail(api.CodeUnauthorized, hint, "the daemon wants a token (Authorization: Bearer)")
}

// refuseBrowsers stands in for the token on loopback TCP without one: there
// every web page the user visits could reach the daemon. Browsers name the
// page's origin, or the kind of request, or (after DNS rebinding) a foreign host.
func (s *Server) refuseBrowsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if r.Header.Get("Origin") != "" || site != "" && site != "none" || !loopbackHost(r.Host) {
			s.writeFailure(w, s.failed(r.Context(), fail(api.CodeForbidden,
				"start the daemon with --token-file to use it from a web page or under another name",
				"requests of web pages and for other hosts are refused on a listener without a token")))
			return
		}
		note(r.Context()).principal = "loopback"
		next.ServeHTTP(w, r)
	})
}

// loopbackHost reports whether a Host header means this machine by a name that
// no DNS server decides.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
