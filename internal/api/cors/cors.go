// Package cors answers browsers that ask whether a page of another origin may call the control
// APIs. Only listed origins may call them, and never with cookies: a page must show a key. Both
// APIs call this package before they authenticate. The trap: a preflight request has no key, so its
// answer must depend on the origin alone.
package cors

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

// Policy lists the origins that may call. Its zero value lists no origin.
type Policy struct{ origins []string }

// Parse reads origins such as https://app.example.com.
func Parse(origins []string) (Policy, error) {
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || o != u.Scheme+"://"+u.Host {
			return Policy{}, fmt.Errorf("origin %q: want a scheme and a host, such as https://app.example.com", o)
		}
	}
	return Policy{origins: slices.Clone(origins)}, nil
}

// The headers a page may send, and the headers it may read.
const (
	requestHeaders = "Authorization, Content-Type, Idempotency-Key, X-Api-Key, X-Access-Token, " +
		"Traceparent, Tracestate"
	exposedHeaders = "Forkd-Error, Forkd-Request-Id, Forkd-Trace-Id, Retry-After, Should-Retry, X-Forkd-Warning, " +
		"X-Next-Token, X-Total-Running"
	methods = "GET, HEAD, POST, PUT, PATCH, DELETE"
)

// Handle sets the headers of an answer. It answers a preflight request, and reports whether it did.
func (p Policy) Handle(w http.ResponseWriter, r *http.Request) (answered bool) {
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	allowed := slices.Contains(p.origins, origin)
	if allowed {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
	}
	if r.Method != http.MethodOptions || origin == "" || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	if allowed {
		h.Set("Access-Control-Allow-Methods", methods)
		h.Set("Access-Control-Allow-Headers", requestHeaders)
		h.Set("Access-Control-Max-Age", "7200")
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}
