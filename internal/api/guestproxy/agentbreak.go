package guestproxy

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
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// served identifies the VM at the begin of a request on the agent route.
type served struct {
	id  string
	pid int
}

type servedKey struct{}

func withServed(r *http.Request, info sandbox.Info) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), servedKey{}, served{info.ID, info.PID}))
}

// lostGrace is the time in which the end of a VM may become known after its connection broke.
const lostGrace = 500 * time.Millisecond

// lost returns the reason why the VM of a request has ended, is paused or is stalled. It returns
// nil if the VM runs.
func (p *Agent) lost(ctx context.Context) *apierror.Error {
	if principal.KeyEnded(ctx) {
		return apierror.KeyEnded()
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

func (p *Agent) lostNow(ctx context.Context, v served) *apierror.Error {
	info, err := p.sandboxes(ctx).Get(v.id)
	switch {
	case err != nil:
		return apierror.New(api.CodeGuestGone, api.ReasonSandboxEnded, "sandbox %s was killed", v.id)
	case info.Status == sandbox.StatusFailed:
		return apierror.New(api.CodeGuestGone, api.ReasonSandboxFailed, "sandbox %s has failed: %s", v.id, info.Reason)
	case info.Status == sandbox.StatusStalled:
		return about(v.id, apierror.New(api.CodeNoSpace, api.Reason(info.Stall), "sandbox %s is %s", v.id, info.Reason))
	case v.pid != 0 && (info.Status == sandbox.StatusPaused || info.PID != v.pid && (info.PausedIn != "" || info.Cold)):
		return about(v.id, apierror.New(api.CodeGuestGone, api.ReasonSandboxPaused, "sandbox %s was paused", v.id))
	case info.PID != v.pid && info.RolledBackTo != "":
		return apierror.New(api.CodeGuestGone, api.ReasonSandboxRolledBack, "sandbox %s was rolled back to snapshot %s",
			v.id, info.RolledBackTo)
	}
	return nil
}

// about adds the sandbox's id to a failure's details, for the client's advice.
func about(id string, f *apierror.Error) *apierror.Error {
	f.Details = map[string]string{"sandbox": id}
	return f
}

// explainBreaks makes a stream of the agent's services end with a reason in the Connect protocol if
// its VM ends.
func (p *Agent) explainBreaks(resp *http.Response) {
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/connect+") {
		ctx := resp.Request.Context()
		resp.Body = &stream{ReadCloser: resp.Body, why: func() *apierror.Error { return p.lost(ctx) }}
	}
}

// stream is the body of a Connect stream: messages with a header of five bytes and a payload. If
// the stream breaks between two messages, stream appends a last message.
type stream struct {
	io.ReadCloser
	why func() *apierror.Error

	head []byte // of the current message, as far as it was read
	left uint32 // rest of its payload
	tail []byte // appended bytes that were not read yet
	over bool   // the last message was appended
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

// follow tracks the beginnings of messages.
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

// endOfStream returns the Connect protocol's last message of a failed stream.
func endOfStream(f *apierror.Error) []byte {
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
		return nil // our own text can always be encoded
	}
	out := binary.BigEndian.AppendUint32([]byte{flagEnd}, uint32(len(payload)))
	return append(out, payload...)
}
