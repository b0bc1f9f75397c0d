package netproxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
)

const secret = "Bearer s3cret-token-0123456789"

// mirror is a server that returns a request's headers in every place of an answer except the body.
func mirror(w http.ResponseWriter, r *http.Request) {
	value := r.Header.Get("Authorization")
	token := strings.TrimPrefix(value, "Bearer ")
	if strings.EqualFold(r.Method, "TRACE") || strings.EqualFold(r.Method, "TRACK") || r.Header.Get("X-HTTP-Method-Override") != "" ||
		r.Header.Get("Max-Forwards") != "" || r.URL.Path == "/trace" {
		b, _ := httputil.DumpRequest(r, false)
		w.Header().Set("Content-Type", "Message/HTTP; charset=utf-8")
		w.Write(b)
		return
	}
	w.Header().Set("Link", "<https://a.test/?t="+token+">")
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Set("Location", "/?token="+token)
	w.Header().Set("X-Seen", value)
	w.Header().Set("Trailer", "X-Late")
	fmt.Fprint(w, "fine")
	w.Header().Set("X-Late", value)
	w.Header().Set(http.TrailerPrefix+"X-Later", value)
}

// TestTheGuestDoesNotSeeTheHeadersThatTheHostSets sends requests that make a server return the
// request.
func TestTheGuestDoesNotSeeTheHeadersThatTheHostSets(t *testing.T) {
	for _, c := range []struct {
		request string
		status  int
	}{
		{"TRACE / HTTP/1.1\r\nHost: example.com\r\n\r\n", 405},
		{"trace / HTTP/1.1\r\nHost: example.com\r\n\r\n", 405},
		{"TrAcE /a HTTP/1.1\r\nHost: example.com\r\nMax-Forwards: 0\r\n\r\n", 405},
		{"TRACK / HTTP/1.1\r\nHost: example.com\r\n\r\n", 405},
		{"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", 405},
		{"POST / HTTP/1.1\r\nHost: example.com\r\nX-HTTP-Method-Override: trace\r\nContent-Length: 0\r\n\r\n", 405},
		{"GET / HTTP/1.1\r\nHost: example.com\r\nMax-Forwards: 0\r\n\r\n", 200},
		{"OPTIONS /a HTTP/1.1\r\nHost: example.com\r\nMax-Forwards: 0\r\n\r\n", 200},
		{"OPTIONS * HTTP/1.1\r\nHost: example.com\r\n\r\n", 200},
		{"GET /trace HTTP/1.1\r\nHost: example.com\r\n\r\n", 502},
		{"GET / HTTP/1.1\r\nHost: example.com\r\nTE: trailers\r\n\r\n", 200},
	} {
		line, _, _ := strings.Cut(c.request, "\r\n")
		t.Run(line, func(t *testing.T) {
			config, dial := interceptedTo(t, "example.com", true, mirror, map[string]string{"authorization": secret})
			conn := tls.Client(dial(), config)
			go io.WriteString(conn, c.request)
			r := &recorded{r: conn}
			res, err := http.ReadResponse(bufio.NewReader(r), nil)
			for err == nil && res.StatusCode == http.StatusEarlyHints {
				res, err = http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader(r.after("\r\n\r\n")), r)), nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			if res.StatusCode != c.status {
				t.Errorf("got %s, want %d", res.Status, c.status)
			}
			if strings.Contains(r.all.String(), "s3cret") {
				t.Errorf("the guest was told the secret:\n%s", r.all.String())
			}
		})
	}
}

// recorded stores all bytes read.
type recorded struct {
	r   io.Reader
	all strings.Builder
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.all.Write(b[:n])
	return n, err
}

func (r *recorded) after(mark string) string {
	_, rest, _ := strings.Cut(r.all.String(), mark)
	return rest
}

// TestHTTP2DoesNotReflectEither does the same over HTTP/2.
func TestHTTP2DoesNotReflectEither(t *testing.T) {
	config, dial := interceptedTo(t, "example.com", true, mirror, map[string]string{"authorization": secret})
	tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}
	defer tr.CloseIdleConnections()
	for method, want := range map[string]int{"TRACE": 405, "trace": 405, "GET": 200} {
		r, err := http.NewRequest(method, "https://example.com/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if text := fmt.Sprint(res.Header, res.Trailer, string(b)); res.StatusCode != want || res.ProtoMajor != 2 || strings.Contains(text, "s3cret") {
			t.Errorf("%s: %s %s", method, res.Status, text)
		}
	}
}
