package netd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/net/netd/control"
)

const (
	pageLimit   = 10 * time.Second
	requestMost = 16 << 10
)

// serveHTTP answers one request with the last refusals, for debugging inside the guest.
func (v *vm) serveHTTP(_ context.Context, c net.Conn) {
	c.SetDeadline(time.Now().Add(pageLimit))
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(c, requestMost)))
	if err != nil {
		return
	}
	status, kind, body := v.page(r)
	fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %d\r\n"+
		"Cache-Control: no-store\r\nConnection: close\r\n\r\n", status, http.StatusText(status), kind, len(body))
	if r.Method != http.MethodHead {
		io.WriteString(c, body)
	}
	if u, ok := c.(*net.UnixConn); ok {
		u.CloseWrite()
		io.Copy(io.Discard, io.LimitReader(c, requestMost)) // unread bytes would reset the answer
	}
}

func (v *vm) page(r *http.Request) (status int, kind, body string) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return http.StatusMethodNotAllowed, "text/plain", "GET only\n"
	case r.URL.Path != "/denied":
		return http.StatusNotFound, "text/plain", "GET /denied lists refused connections\n"
	}
	lines := v.refusals.list()
	if strings.Contains(r.Header.Get("Accept"), "application/json") || r.URL.Query().Get("format") == "json" {
		b, err := json.Marshal(lines)
		if err != nil {
			return http.StatusInternalServerError, "text/plain", err.Error() + "\n"
		}
		return http.StatusOK, "application/json", string(b) + "\n"
	}
	return http.StatusOK, "text/plain", pageText(lines)
}

func pageText(lines []control.Line) string {
	if len(lines) == 0 {
		return "No connection was refused.\n"
	}
	var b strings.Builder
	for _, l := range lines {
		what := l.Name
		if l.Far.IsValid() {
			what = strings.TrimSuffix(l.Far.String()+" ("+l.Name+")", " ()")
		}
		fmt.Fprintf(&b, "%s  %s %s  %s: %s", l.Time.UTC().Format(time.RFC3339), l.Protocol, what, l.Verdict, l.Reason)
		if l.Count > 1 {
			fmt.Fprintf(&b, " (%d times)", l.Count)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
