package httpapi

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/intake"
	"github.com/forkd/forkd/internal/api/listen"
)

// drainBody makes errors reach clients that send their whole body before they read. The kernel resets
// a connection closed with unread bytes, and the client would see only the reset. drainBody therefore
// reads and discards the rest, within limits of size and time, and then closes the connection.
func (s *Server) drainBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec, ok := w.(*recorder)
		if !ok || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		body := intake.New(r.Body)
		rec.body, r.Body = body, body
		next.ServeHTTP(w, r)
		rec.finish()
		if rec.status < 400 || body.Ended() || strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
			return
		}
		control := http.NewResponseController(w)
		if control.Flush() != nil || control.SetReadDeadline(time.Now().Add(s.limits.deadlines.Rest)) != nil {
			return
		}
		listen.ConnOf(r.Context()).Drain()
		_, _ = io.CopyN(io.Discard, body.Rest(), s.limits.swallowBytes)
	})
}
