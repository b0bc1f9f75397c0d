package iodeadline

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// deadlines records the deadlines of a connection.
type deadlines struct {
	http.ResponseWriter
	mu          sync.Mutex
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.read = t
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.write = t
	return nil
}

func (d *deadlines) now() (read, write time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read, d.write
}

// Hijack clears deadlines like net/http.
func (d *deadlines) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	d.SetReadDeadline(time.Time{})
	d.SetWriteDeadline(time.Time{})
	a, b := net.Pipe()
	b.Close()
	return a, bufio.NewReadWriter(bufio.NewReader(a), bufio.NewWriter(a)), nil
}

func newWriter(body io.Reader) (*deadlines, *Writer, *http.Request) {
	d := &deadlines{ResponseWriter: httptest.NewRecorder()}
	out, r := New(d, httptest.NewRequest(http.MethodPost, "/", body), Limits{Read: time.Minute, Write: time.Minute, Rest: time.Second})
	return d, out, r
}

var past = time.Unix(1, 0)

// The end of a key ends a request, at any moment of a read or a write.
func TestADeadlineOfThePastStays(t *testing.T) {
	for range 100 {
		d, out, r := newWriter(strings.NewReader(strings.Repeat("x", 1000)))
		var all sync.WaitGroup
		all.Go(func() {
			for range 50 {
				_, _ = out.Write([]byte("piece"))
			}
		})
		all.Go(func() {
			for range 50 {
				_, _ = r.Body.Read(make([]byte, 1))
			}
		})
		all.Go(func() { // a handler that limits its reads, and then removes the limit
			control := http.NewResponseController(out)
			for range 50 {
				_ = control.SetReadDeadline(time.Now().Add(time.Minute))
				_ = control.SetReadDeadline(time.Time{})
			}
		})
		all.Go(func() {
			control := http.NewResponseController(out)
			control.SetReadDeadline(past)
			control.SetWriteDeadline(past)
		})
		all.Wait()
		if _, _, err := http.NewResponseController(out).Hijack(); err != nil {
			t.Fatal(err)
		}
		if read, write := d.now(); !read.Equal(past) || !write.Equal(past) {
			t.Fatalf("the last deadlines are %s and %s", read, write)
		}
	}
}

// Pieces do not extend a handler's deadline for the whole body. The end of the body removes that
// deadline.
func TestAHandlersDeadlineBoundsThePieces(t *testing.T) {
	d, out, r := newWriter(io.MultiReader(strings.NewReader("a"), strings.NewReader("b")))
	soon := time.Now().Add(time.Second)
	_ = out.SetReadDeadline(soon)
	for range 2 {
		if _, err := r.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if read, _ := d.now(); !read.Equal(soon) {
			t.Errorf("the deadline is %s, want %s", read, soon)
		}
	}
	if _, err := r.Body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if read, _ := d.now(); !read.IsZero() {
		t.Errorf("after the body the deadline is %s", read)
	}
}

// Code that outlives a handler cannot change the connection's next request.
func TestNothingIsSetAfterTheHandler(t *testing.T) {
	d, out, r := newWriter(strings.NewReader("abc"))
	if rest := out.Finish(); rest.IsZero() {
		t.Error("a body that was not read has no deadline")
	}
	d.SetReadDeadline(time.Time{})
	d.SetWriteDeadline(time.Time{}) // set by the next request
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = out.Write([]byte("x"))
	out.SetReadDeadline(past)
	out.SetWriteDeadline(past)
	if read, write := d.now(); !read.IsZero() || !write.IsZero() {
		t.Errorf("the deadlines are %s and %s", read, write)
	}
}

// stopped is a body with reads that time out.
type stopped struct{}

func (stopped) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// A timeout counts as silence only if it is the body's own.
func TestSilence(t *testing.T) {
	for name, row := range map[string]struct {
		before func(*Writer)
		silent bool
	}{
		"of a piece":  {func(*Writer) {}, true},
		"of all":      {func(o *Writer) { _ = o.SetReadDeadline(time.Now().Add(time.Second)) }, false},
		"of a key":    {func(o *Writer) { _ = o.SetReadDeadline(past) }, false},
		"of a stream": {func(o *Writer) { o.reads.free() }, false},
	} {
		_, out, r := newWriter(stopped{})
		row.before(out)
		_, err := r.Body.Read(make([]byte, 1))
		var silent *SilentError
		if errors.As(err, &silent) != row.silent || (Silence(r.Context()) != nil) != row.silent ||
			!errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, %v", name, err, Silence(r.Context()))
		}
	}
}

// A handler that bounds the arrival of the body goes on for longer than that, with and without a body.
func TestARequestOutlivesTheDeadlineOfItsBody(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, r := New(w, r, Limits{Read: time.Minute, Write: time.Minute, Rest: time.Second})
		control := http.NewResponseController(out)
		if err := control.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		if err := control.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil { // after the end of the body
			t.Error(err)
		}
		select {
		case <-r.Context().Done():
			http.Error(out, r.Context().Err().Error(), http.StatusServiceUnavailable)
		case <-time.After(200 * time.Millisecond):
			out.WriteHeader(http.StatusNoContent)
		}
	}))
	defer s.Close()
	for name, body := range map[string]io.Reader{"none": http.NoBody, "some": strings.NewReader("{}")} {
		resp, err := http.Post(s.URL, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			t.Errorf("body %s: status %d", name, resp.StatusCode)
		}
	}
}
