package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/leaf/earlyanswer"
)

// Forward returns a handler that passes requests on to the daemon with the client's credentials,
// and answers back as they arrive. It removes the credentials of the requests. The caller must
// authenticate the senders.
func Forward(to *Client) http.Handler {
	c := &to.connection
	base, err := url.Parse(c.base)
	if err != nil {
		panic(err) // New has made it
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(base)
			p.Out.Header.Del(api.HeaderKey)
			p.Out.Header.Del("Authorization")
			if c.token != "" {
				p.Out.Header.Set("Authorization", "Bearer "+c.token)
			}
			p.Out.Header.Set("User-Agent", c.agent)
		},
		Transport:     c.plain,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set(api.HeaderError, string(api.CodeUnreachable))
			w.WriteHeader(http.StatusBadGateway)
			_ = json.NewEncoder(w).Encode(api.Error{Code: api.CodeUnreachable,
				Message: fmt.Sprintf("the daemon at %s does not answer: %v", c.url, err)})
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = earlyanswer.Allow(w, r)
		proxy.ServeHTTP(w, r)
	})
}
