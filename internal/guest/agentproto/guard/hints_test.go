package guard

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"
)

// hinting is a server that sends n early hints before its answer. If n < 0, it never stops.
func hinting(n int) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			if _, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
				return
			}
			for i := 0; i != n; i++ {
				if _, err := io.WriteString(server, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"); err != nil {
					return
				}
			}
			_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}()
		return client, nil
	}
}

func TestHintsBehindAProxyAreBounded(t *testing.T) {
	for _, c := range []struct{ hints, want int }{
		{0, http.StatusOK}, {MaxHints, http.StatusOK}, {MaxHints + 1, http.StatusBadGateway}, {-1, http.StatusBadGateway},
	} {
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "guest"})
		tr := &http.Transport{DialContext: hinting(c.hints), DisableKeepAlives: true}
		proxy.Transport = Transport{Next: tr}
		proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
		w := &last{ResponseRecorder: httptest.NewRecorder()}
		proxy.ServeHTTP(w, r)
		if w.status != c.want || ctx.Err() != nil {
			t.Errorf("%d hints: status %d, %v, want %d", c.hints, w.status, ctx.Err(), c.want)
		}
		cancel()
	}
}

// last keeps the status of the final answer.
type last struct {
	*httptest.ResponseRecorder
	status int
}

func (l *last) WriteHeader(code int) {
	if code >= http.StatusOK {
		l.status = code
	}
}
