package netproxy

import (
	"mime"
	"net/http"
	"strings"
)

// If a server returns a request to its sender, the guest sees the headers set by the host. So
// package netproxy refuses HTTP's own ways to request this, and hides the values in the headers of
// answers. It cannot prevent a server from putting them into a body: a user who sets headers for a
// host trusts the host with them.

// overrides are request headers that let a client choose another method.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// asksForItself reports whether a request's method asks the server to return the request, or for a
// tunnel.
func asksForItself(r *http.Request) bool {
	if isEcho(r.Method) {
		return true
	}
	for _, name := range overrides {
		for _, value := range r.Header.Values(name) {
			if isEcho(strings.TrimSpace(value)) {
				return true
			}
		}
	}
	return false
}

// isEcho reports whether servers answer a method with the request, or it is CONNECT. It ignores
// case: methods are case-sensitive (RFC 9110 §9.1), but some servers ignore that.
func isEcho(method string) bool {
	return strings.EqualFold(method, http.MethodTrace) || strings.EqualFold(method, "TRACK") ||
		strings.EqualFold(method, http.MethodConnect)
}

// isRequest reports whether the body of an answer is a request: RFC 9110 §9.3.8.
func isRequest(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(h.Get("Content-Type"), ";")
	}
	return strings.EqualFold(strings.TrimSpace(kind), "message/http")
}

// hidden replaces a secret in the headers of an answer.
const hidden = "***"

// shortest is the minimum length of hidden texts. Shorter ones may occur by chance.
const shortest = 8

// secrets are the texts to hide in answers.
type secrets []string

// secretsOf returns the values of headers, and the single words of a value with several words, such
// as the token after "Bearer".
func secretsOf(headers map[string]string) (all secrets) {
	for _, value := range headers {
		all = append(all, value)
		if words := strings.Fields(value); len(words) > 1 {
			all = append(all, words...)
		}
	}
	return all
}

// hide replaces the secrets in the headers of an answer.
func (s secrets) hide(h http.Header) {
	for _, values := range h {
		for i := range values {
			for _, text := range s {
				if len(text) >= shortest {
					values[i] = strings.ReplaceAll(values[i], text, hidden)
				}
			}
		}
	}
}

// hiding hides secrets in the headers it writes, including headers of informational answers.
type hiding struct {
	http.ResponseWriter
	secrets secrets
}

func (w *hiding) WriteHeader(status int) {
	w.secrets.hide(w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets a ResponseController flush and hijack.
func (w *hiding) Unwrap() http.ResponseWriter { return w.ResponseWriter }
