package guard

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
)

// BoundHints returns a request that fails after most informational answers (1xx). In a proxy that
// passes them on, the transport limits each header by itself, so a guest could send them for ever.
// Other callers need no limit: the header's limit then covers them all.
func BoundHints(r *http.Request, most int) *http.Request {
	pass := httptrace.ContextClientTrace(r.Context())
	if pass == nil || pass.Got1xxResponse == nil {
		return r
	}
	bounded := *pass
	seen := 0 // the transport calls from one goroutine
	bounded.Got1xxResponse = func(code int, header textproto.MIMEHeader) error {
		if seen++; seen > most {
			return violation("more than %d informational answers", most)
		}
		return pass.Got1xxResponse(code, header)
	}
	return r.WithContext(httptrace.WithClientTrace(untraced{r.Context()}, &bounded))
}

// untraced hides the trace of a context. Otherwise a new trace would call it as well.
type untraced struct{ context.Context }

// Value implements context.Context.
func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}

// Transport limits the informational answers of a guest behind a proxy.
type Transport struct {
	Next http.RoundTripper // sends the requests
}

// MaxHints limits the informational answers to one request.
const MaxHints = 16

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.Next.RoundTrip(BoundHints(r, MaxHints))
}
