package guestproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// A stream that breaks between two messages gets an explanation. At every other position it is
// passed on unchanged.
func TestBrokenStreams(t *testing.T) {
	broken := errors.New("connection reset")
	message := []byte{0, 0, 0, 0, 3, 'a', 'b', 'c'}
	empty := []byte{0, 0, 0, 0, 0}
	why := apierror.New(api.CodeGuestGone, "", "it was rolled back")
	tail := endOfStream(why)
	for _, c := range []struct {
		name string
		got  []byte
		end  error
		why  *apierror.Error
		want []byte
		err  error
	}{
		{"whole", message, io.EOF, why, message, nil},
		{"nothing yet", nil, broken, why, tail, nil},
		{"between messages", bytes.Join([][]byte{message, empty, message}, nil), broken, why, bytes.Join([][]byte{message, empty, message, tail}, nil), nil},
		{"cut short", message, io.ErrUnexpectedEOF, why, append(bytes.Clone(message), tail...), nil},
		{"within a head", message[:3], broken, why, message[:3], broken},
		{"within a payload", message[:6], broken, why, message[:6], broken},
		{"for no reason that we know", message, broken, nil, message, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, slow := range []bool{false, true} {
				in := io.MultiReader(bytes.NewReader(c.got), iotest.ErrReader(c.end))
				if slow {
					in = iotest.OneByteReader(in)
				}
				got, err := io.ReadAll(&stream{ReadCloser: io.NopCloser(in), why: func() *apierror.Error { return c.why }})
				if !bytes.Equal(got, c.want) || !errors.Is(err, c.err) {
					t.Errorf("got %q, %v; want %q, %v", got, err, c.want, c.err)
				}
			}
		})
	}
}

// stalledFor is an engine with one sandbox, stalled for a reason.
type stalledFor struct {
	roles.Sandboxes
	sandbox.Reason
}

func (s stalledFor) Get(id string) (sandbox.Info, error) {
	return sandbox.Info{ID: id, Status: sandbox.StatusStalled, Stall: s.Reason, Reason: "paused"}, nil
}

// The agent route, which exec and cp use, has the same reason for a stalled sandbox as the others.
func TestTheAgentRouteKnowsWhichDiskIsFull(t *testing.T) {
	for _, why := range []sandbox.Reason{sandbox.ReasonDiskLimit, sandbox.ReasonDiskNoRoom} {
		p := &Agent{sandboxes: func(context.Context) roles.Sandboxes { return stalledFor{Reason: why} }}
		f := p.lostNow(t.Context(), served{id: "sb-1"})
		if f == nil || f.Code != api.CodeNoSpace || f.Reason != api.Reason(why) || f.Details["sandbox"] != "sb-1" {
			t.Errorf("%s: %+v", why, f)
		}
	}
}
