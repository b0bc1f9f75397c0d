package interp

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

func startCapture(t *testing.T) (*capture, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := newCapture(r, new(sync.RWMutex))
	go c.run()
	t.Cleanup(func() { w.Close(); c.close() })
	return c, w
}

// Output written before take is returned exactly once, whichever goroutine has read it from the
// pipe.
func TestTakeHasWhatWasWrittenBefore(t *testing.T) {
	c, w := startCapture(t)
	for n := range 3000 {
		want := strings.Repeat("x", n*7%9000) + "\n"
		if _, err := w.WriteString(want); err != nil {
			t.Fatal(err)
		}
		if got, dropped := c.take(); got != want || dropped != 0 {
			t.Fatalf("write %d: got %d bytes of %d, %d dropped", n, len(got), len(want), dropped)
		}
	}
}

// A writer is never blocked, and output meanwhile stays in order.
func TestAllThatIsWrittenComesInOrder(t *testing.T) {
	c, w := startCapture(t)
	var want, got bytes.Buffer
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := range 2000 {
			line := bytes.Repeat([]byte{byte(n)}, n%1500)
			want.Write(line)
			if _, err := w.Write(line); err != nil {
				t.Error(err)
			}
		}
	})
	stop := make(chan struct{})
	go func() { writer.Wait(); close(stop) }()
	for done := false; !done; {
		select {
		case <-stop:
			done = true
		default:
		}
		s, _ := c.take()
		got.WriteString(s)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("got %d bytes, want %d", got.Len(), want.Len())
	}
}

func TestOutputBeyondTheBoundIsCounted(t *testing.T) {
	c, w := startCapture(t)
	chunk := make([]byte, 1<<20)
	for range 5 {
		if _, err := w.Write(chunk); err != nil { // never blocked, without any take
			t.Fatal(err)
		}
	}
	if s, dropped := c.take(); len(s) != maxOutput || dropped != 1<<20 {
		t.Errorf("got %d bytes, %d dropped", len(s), dropped)
	}
}

// A capture that is closed, or without writers, still returns its output, and its reader ends.
func TestTheEndOfACapture(t *testing.T) {
	c, w := startCapture(t)
	if _, err := w.WriteString("last words"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		t.Fatal("its reader goes on")
	}
	if s, _ := c.take(); s != "last words" {
		t.Errorf("got %q", s)
	}
	c.close()
	if s, _ := c.take(); s != "" {
		t.Errorf("closed: got %q", s)
	}
}
