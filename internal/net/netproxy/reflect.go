package netproxy

import (
	"mime"
	"net/http"
	"strings"
)

// A server that sends a request back shows the guest the headers that the host has set. Package
// netproxy refuses the ways that HTTP itself has for that, and hides the values in the headers of
// answers. A server that puts them into a body cannot be stopped: who allows headers for a host trusts
// it with them.

// overrides are request headers by which servers let a client choose another method.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// asksForItself reports whether a request asks for itself, or for a tunnel, by its method.
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

// isEcho is true of methods that servers answer with the request, and of CONNECT. Methods are
// case-sensitive (RFC 9110 §9.1), and not every server knows.
func isEcho(method string) bool {
	return strings.EqualFold(method, http.MethodTrace) || strings.EqualFold(method, "TRACK") ||
		strings.EqualFold(method, http.MethodConnect)
}

// isRequest reports whether an answer's body is a request: RFC 9110 §9.3.8.
func isRequest(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		kind, _, _ = strings.Cut(h.Get("Content-Type"), ";")
	}
	return strings.EqualFold(strings.TrimSpace(kind), "message/http")
}

// hidden stands for a value in the headers of an answer.
const hidden = "***"

// shortest is the length of the shortest text that is hidden: a short one may be there by chance.
const shortest = 8

// secrets are the texts to hide in answers.
type secrets []string

// secretsOf returns the values of headers, and the words of those that have several, such as the token
// behind "Bearer".
func secretsOf(headers map[string]string) (all secrets) {
	for _, value := range headers {
		all = append(all, value)
		if words := strings.Fields(value); len(words) > 1 {
			all = append(all, words...)
		}
	}
	return all
}

// hide replaces them in the headers of an answer.
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

// hiding hides secrets in the headers that it writes, those of informational answers among them.
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
