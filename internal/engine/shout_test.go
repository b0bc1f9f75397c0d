package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// maxShown is the size limit, in bytes, of an error with a guest's text.
const maxShown = 8 << 10

func checkShown(t *testing.T, what, text string) {
	t.Helper()
	bad := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	if len(text) > maxShown || bad >= 0 {
		t.Errorf("%s has %d bytes, the first bad one at %d", what, len(text), bad)
	}
}

// A guest's text in errors, events and the log is short and printable, in any form the guest sends
// it.
func TestAGuestThatShouts(t *testing.T) {
	for _, fault := range []string{"identity-shout", "identity-shout-error"} {
		t.Run(fault, func(t *testing.T) {
			h := newHost(t)
			s := h.listen()
			var log syncBuffer
			h.cfg.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			e := h.open()
			h.snapshot(e, "p")
			h.fault(fault, 1)
			r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "p", N: 1})
			if err == nil && len(r.Children) == 1 {
				err = r.Children[0].Err
			}
			if err == nil {
				t.Fatal("the fork has succeeded")
			}
			checkShown(t, "the error", err.Error())
			s.mu.Lock()
			all := strings.Join(s.all, "\n")
			s.mu.Unlock()
			checkShown(t, "what is told", all)
			if n := len(log.String()); n > 64<<10 {
				t.Errorf("the log has %d bytes", n)
			}
			t.Logf("error %d bytes, events %d, log %d", len(err.Error()), len(all), len(log.String()))
		})
	}
}
