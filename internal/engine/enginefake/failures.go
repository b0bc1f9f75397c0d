package enginefake

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Failures keeps log records at Warn level, by message.
type Failures struct {
	slog.Handler
	mu   sync.Mutex // guards the fields below
	seen []slog.Record
}

func (r *Failures) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (r *Failures) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, rec)
	return nil
}

// Failures returns the attributes of the log records of failed sandboxes.
func (r *Failures) Failures() (all []map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.seen {
		if rec.Message != "sandbox failed" {
			continue
		}
		attrs := map[string]string{}
		rec.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
		all = append(all, attrs)
	}
	return all
}

// LogFailures collects what the host's engines log about failures.
func LogFailures(h *Host) *Failures {
	r := &Failures{}
	h.Cfg.Logger = slog.New(r)
	return r
}

// PanicReason is the reason of a sandbox whose guest has panicked on request.
const PanicReason = "the guest's kernel panicked: Fatal exception, " +
	"after BUG: kernel NULL pointer dereference, address: 0"

// WantOneFailure checks that a sandbox's end was logged once, with all details.
func WantOneFailure(t *testing.T, log *Failures, id, reason, console string) {
	t.Helper()
	all := log.Failures()
	if len(all) != 1 {
		t.Fatalf("%d records of failures: %v", len(all), all)
	}
	got := all[0]
	if age, err := time.ParseDuration(got["age"]); err != nil || age <= 0 {
		t.Errorf("age %q", got["age"])
	}
	if got["sandbox"] != id || got["snapshot"] != "a" || !strings.Contains(got["reason"], reason) ||
		!strings.Contains(got["console"], console) || strings.Contains(got["console"], "\x1b") {
		t.Errorf("logged is %q", got)
	}
}
