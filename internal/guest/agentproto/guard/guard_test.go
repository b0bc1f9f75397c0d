package guard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

func frame(flags byte, size int) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(size))
	return append(b, make([]byte, min(size, 100))...)
}

func TestFrames(t *testing.T) {
	message, end := frame(0, 7), frame(flagEnd, 2)
	for _, c := range []struct {
		name  string
		bytes []byte
		bad   string
	}{
		{"messages and an end", bytes.Join([][]byte{message, frame(0, 0), message, end}, nil), ""},
		{"a torn frame", message[:9], ""}, // reported by Connect
		{"after the end", bytes.Join([][]byte{message, end, message}, nil), "after the end"},
		{"two ends", bytes.Join([][]byte{end, end}, nil), "after the end"},
		{"a compressed message", frame(flagCompressed, 7), "compressed"},
		{"a compressed end", frame(flagEnd|flagCompressed, 7), "compressed"},
		{"unknown flags", frame(0x80, 7), "flags"},
		{"a huge message", frame(0, agentproto.MaxMessageBytes+1), "at most"},
		{"a huge end", frame(flagEnd, maxRefusal+1), "at most"},
	} {
		for _, how := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader} {
			f := newFrames(io.NopCloser(how(bytes.NewReader(c.bytes))))
			_, err := io.ReadAll(f)
			f.Close()
			var broke *agentproto.Violation
			switch {
			case c.bad == "" && err != nil:
				t.Errorf("%s: %v", c.name, err)
			case c.bad != "" && (!errors.As(err, &broke) || !strings.Contains(broke.What, c.bad)):
				t.Errorf("%s: %v, want %q", c.name, err, c.bad)
			}
		}
	}
}

func TestResponsesAreBoundedByTheRequest(t *testing.T) {
	for _, c := range []struct {
		name, asked string
		status      int
		size        int
		ok          bool
	}{
		{"the largest message", "application/proto", 200, agentproto.MaxMessageBytes, true},
		{"a larger one", "application/proto", 200, agentproto.MaxMessageBytes + 1, false},
		{"a long refusal", "application/proto", 500, maxRefusal + 1, false},
		{"a long refusal of a file", "application/octet-stream", 404, maxRefusal + 1, false},
		{"a long file", "", 200, agentproto.MaxMessageBytes + 1, true},
		{"a switch of protocols", "", 101, 0, false},
	} {
		req := &http.Request{Header: http.Header{"Content-Type": {c.asked}}}
		resp := &http.Response{StatusCode: c.status, Header: http.Header{},
			Body: io.NopCloser(io.LimitReader(zeros{}, int64(c.size)))}
		err := Response(req, resp)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		var broke *agentproto.Violation
		if (err == nil) != c.ok || err != nil && !errors.As(err, &broke) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// FuzzFrames compares the guard with a parser of whole frames.
func FuzzFrames(f *testing.F) {
	f.Add(append(frame(0, 3), frame(flagEnd, 2)...), 1)
	f.Add(append(frame(flagEnd, 0), 0), 4)
	f.Add(frame(flagCompressed, 3), 2)
	f.Fuzz(func(t *testing.T, b []byte, chunk int) {
		in := newFrames(io.NopCloser(bytes.NewReader(b)))
		defer in.Close()
		got, err := io.ReadAll(struct{ io.Reader }{chunked{in, max(1, chunk%64)}})
		if err == nil && !bytes.Equal(got, b) {
			t.Fatal("bytes were lost")
		}
		if want := inOrder(b); (err == nil) != want {
			t.Fatalf("%x: %v, in order: %v", b, err, want)
		}
	})
}

// chunked reads a few bytes at a time.
type chunked struct {
	from io.Reader
	n    int
}

func (c chunked) Read(p []byte) (int, error) { return c.from.Read(p[:min(len(p), c.n)]) }

func inOrder(b []byte) bool {
	for len(b) >= headBytes {
		flags, size := b[0], int(binary.BigEndian.Uint32(b[1:]))
		b = b[headBytes:]
		switch {
		case flags == flagEnd:
			return size <= maxRefusal && len(b) <= size
		case flags != 0, size > agentproto.MaxMessageBytes:
			return false
		case size >= len(b):
			return true
		}
		b = b[size:]
	}
	return true
}

// An agent's redirect ends its call, and a guest's answer has no effect on the whole host name.
func TestProxiedAnswers(t *testing.T) {
	for status, refused := range map[int]bool{200: false, 204: false, 206: false, 304: false, 404: false,
		300: true, 301: true, 302: true, 303: true, 305: true, 307: true, 308: true, 399: true} {
		resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}
		for _, name := range []string{"Alt-Svc", "Clear-Site-Data", "Refresh", "Set-Cookie", "Strict-Transport-Security", "Content-Type"} {
			resp.Header.Set(name, "x")
		}
		var broke *agentproto.Violation
		if err := Proxied(resp); errors.As(err, &broke) != refused || (err != nil) != refused {
			t.Errorf("%d: %v", status, err)
		}
		if !refused && len(resp.Header) != 1 {
			t.Errorf("%d: %v is passed on", status, resp.Header)
		}
	}
}
