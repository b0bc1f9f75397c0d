package earlyanswer

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTheClientIsTold sends half a request and whole requests. The answer to half a request
// announces the end of its connection. The answer to a whole request leaves the connection open.
func TestTheClientIsTold(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = Allow(w, r)
		if r.URL.Path == "/whole" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		_, _ = io.WriteString(w, "enough")
	}))
	defer s.Close()
	for _, c := range []struct {
		path  string
		close bool
	}{{"/whole", false}, {"/half", true}} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		req, err := http.NewRequest(http.MethodPost, s.URL+c.path, strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = req.Write(conn) }() // the server does not read the rest of half a request
		resp, err := http.ReadResponse(bufio.NewReader(conn), req)
		if err != nil {
			t.Fatalf("%s: %v", c.path, err)
		}
		if resp.Close != c.close {
			t.Errorf("%s: the answer says that the connection closes: %v", c.path, resp.Close)
		}
	}
}
