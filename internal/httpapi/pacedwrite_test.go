package httpapi

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// deadlines records the write deadlines of an answer.
type deadlines struct {
	http.ResponseWriter
	mu   sync.Mutex
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = t
	return nil
}

// The end of a key ends an answer, at whatever moment of a write it comes.
func TestADeadlineOfThePastStays(t *testing.T) {
	for range 100 {
		d := &deadlines{ResponseWriter: httptest.NewRecorder()}
		out := &paced{ResponseWriter: d, control: http.NewResponseController(d), patience: time.Minute}
		past := time.Unix(1, 0)
		var all sync.WaitGroup
		all.Go(func() {
			for range 50 {
				_, _ = out.Write([]byte("piece"))
			}
		})
		all.Go(func() { _ = http.NewResponseController(out).SetWriteDeadline(past) })
		all.Wait()
		if !d.last.Equal(past) {
			t.Fatalf("the last deadline is %s", d.last)
		}
	}
}
