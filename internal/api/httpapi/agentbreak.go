package httpapi

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// served is the VM that a request on the agent route began with.
type served struct {
	id  string
	pid int
}

type servedKey struct{}

func withServed(r *http.Request, info sandbox.Info) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), servedKey{}, served{info.ID, info.PID}))
}

// lostGrace is how long after a broken connection the end of its VM may become known.
const lostGrace = 500 * time.Millisecond

// lost says why the VM that served a request is no more, or stands still; nil if it runs.
func (p *agentProxy) lost(ctx context.Context) *failure {
	if keyEnded(ctx) {
		return errKeyEnded()
	}
	v, ok := ctx.Value(servedKey{}).(served)
	if !ok {
		return nil
	}
	for deadline := time.Now().Add(lostGrace); ; time.Sleep(10 * time.Millisecond) {
		if f := p.lostNow(ctx, v); f != nil || ctx.Err() != nil || time.Now().After(deadline) {
			return f
		}
	}
}

func (p *agentProxy) lostNow(ctx context.Context, v served) *failure {
	info, err := p.sandboxes(ctx).Get(v.id)
	switch {
	case err != nil:
		return fail(api.CodeGuestGone, api.ReasonSandboxEnded, "sandbox %s was killed", v.id)
	case info.Status == sandbox.StatusFailed:
		return fail(api.CodeGuestGone, api.ReasonSandboxFailed, "sandbox %s has failed: %s", v.id, info.Reason)
	case info.Status == sandbox.StatusStalled:
		return fail(api.CodeNoSpace, api.ReasonDiskNoRoom, "sandbox %s is %s", v.id, info.Reason)
	case v.pid != 0 && (info.Status == sandbox.StatusPaused || info.PID != v.pid && (info.PausedIn != "" || info.Cold)):
		f := fail(api.CodeGuestGone, api.ReasonSandboxPaused, "sandbox %s was paused", v.id)
		f.Details = map[string]string{"sandbox": v.id}
		return f
	case info.PID != v.pid && info.RolledBackTo != "":
		return fail(api.CodeGuestGone, api.ReasonSandboxRolledBack, "sandbox %s was rolled back to snapshot %s",
			v.id, info.RolledBackTo)
	}
	return nil
}

// explainBreaks lets a stream of the agent's services that breaks off with its
// VM end with the reason, in the protocol's own way.
func (p *agentProxy) explainBreaks(resp *http.Response) {
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/connect+") {
		ctx := resp.Request.Context()
		resp.Body = &stream{ReadCloser: resp.Body, why: func() *failure { return p.lost(ctx) }}
	}
}

// stream is the body of a Connect stream: messages of five bytes of head and a
// payload. One that breaks between two messages gets a last one.
type stream struct {
	io.ReadCloser
	why func() *failure

	head []byte // of the message under way, as far as it was read
	left uint32 // of its payload
	tail []byte // what we add, as far as it was not read
	over bool   // we have added it
}

func (s *stream) Read(p []byte) (int, error) {
	if s.over {
		n := copy(p, s.tail)
		s.tail = s.tail[n:]
		if n == 0 && len(p) > 0 {
			return 0, io.EOF
		}
		return n, nil
	}
	n, err := s.ReadCloser.Read(p)
	s.follow(p[:n])
	if err == nil || errors.Is(err, io.EOF) || len(s.head) > 0 {
		return n, err
	}
	f := s.why()
	if f == nil {
		return n, err
	}
	s.over, s.tail = true, endOfStream(f)
	return n, nil
}

// follow keeps track of where messages begin.
func (s *stream) follow(b []byte) {
	for len(b) > 0 {
		if need := 5 - len(s.head); need > 0 {
			n := min(need, len(b))
			s.head, b = append(s.head, b[:n]...), b[n:]
			if len(s.head) < 5 {
				return
			}
			s.left = binary.BigEndian.Uint32(s.head[1:])
		}
		n := min(uint64(s.left), uint64(len(b)))
		s.left, b = s.left-uint32(n), b[n:]
		if s.left == 0 {
			s.head = s.head[:0]
		}
	}
}

// endOfStream is the Connect protocol's last message of a stream that failed.
func endOfStream(f *failure) []byte {
	const flagEnd = 2
	code := "unavailable"
	if f.Code == api.CodeNoSpace {
		code = "resource_exhausted"
	}
	if f.Code == api.CodeUnauthorized {
		code = "unauthenticated"
	}
	payload, err := json.Marshal(map[string]any{"error": map[string]string{"code": code, "message": f.Message}})
	if err != nil {
		return nil // text of ours always encodes
	}
	out := binary.BigEndian.AppendUint32([]byte{flagEnd}, uint32(len(payload)))
	return append(out, payload...)
}
