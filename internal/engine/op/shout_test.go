package op_test

import (
	"log/slog"
	"strings"
	"testing"
	"unicode"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
)

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
			h := enginefake.NewHost(t)
			s := enginefake.Listen(h)
			var log enginefake.Log
			h.Cfg.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			e := h.Open()
			h.Snapshot(e, "p")
			h.Fault(fault, 1)
			r, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "p", N: 1})
			if err == nil && len(r.Children) == 1 {
				err = r.Children[0].Err
			}
			if err == nil {
				t.Fatal("the fork has succeeded")
			}
			checkShown(t, "the error", err.Error())
			s.Mu.Lock()
			all := strings.Join(s.All, "\n")
			s.Mu.Unlock()
			checkShown(t, "what is told", all)
			if n := len(log.String()); n > 64<<10 {
				t.Errorf("the log has %d bytes", n)
			}
			t.Logf("error %d bytes, events %d, log %d", len(err.Error()), len(all), len(log.String()))
		})
	}
}
