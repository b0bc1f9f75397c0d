package events

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var errEnough = errors.New("enough")

func clock() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// collect follows until it has n events.
func collect(t *testing.T, l *Log, after uint64, n int) []Event {
	t.Helper()
	var got []Event
	err := l.Follow(t.Context(), after, func(e Event) error {
		if got = append(got, e); len(got) == n {
			return errEnough
		}
		return nil
	})
	if err != errEnough {
		t.Fatal(err)
	}
	return got
}

func filled(last uint64, room, n int) *Log {
	l := New(last, room, clock)
	for i := range n {
		l.Add(Event{Kind: "k", Sandbox: fmt.Sprint(i)})
	}
	return l
}

func TestResuming(t *testing.T) {
	const last = 7 << idBits
	l := filled(last, 10, 25) // 16 to 25 are kept
	for _, c := range []struct {
		name  string
		after uint64
		first uint64
		kind  string
	}{
		{"all that there are", 0, last + 16, "k"},
		{"the newest only", last + 24, last + 25, "k"},
		{"from the oldest that is there", last + 15, last + 16, "k"},
		{"one that is gone", last + 14, last + 15, KindGap},
		{"one of an earlier daemon", 6<<idBits + 3, last + 15, KindGap},
		{"one that never was", last + 26, last + 25, KindGap},
		{"one of a later daemon", 8<<idBits + 3, last + 25, KindGap},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := collect(t, l, c.after, 1)[0]
			if got.ID != c.first || got.Kind != c.kind || !got.Time.Equal(clock()) {
				t.Errorf("got %+v", got)
			}
		})
	}
	// A reader that resumes from a gap's ID gets the first kept event.
	got := collect(t, l, 1, 2)
	if got[0].Kind != KindGap || got[1].ID != last+16 || collect(t, l, got[0].ID, 1)[0].ID != last+16 {
		t.Errorf("got %+v", got)
	}
	if d := got[0].Detail; d["after"] != "1" || d["last"] != fmt.Sprint(uint64(last+15)) {
		t.Errorf("the gap says %v", d)
	}
}

// With many writers and readers, each reader gets every event once, in order, or ErrSlow.
func TestReadersUnderLoad(t *testing.T) {
	const adders, each = 8, 2000
	l := New(0, adders*each, clock)
	var adding, reading sync.WaitGroup
	for range 8 {
		reading.Go(func() {
			at := uint64(0)
			err := l.Follow(t.Context(), 0, func(e Event) error {
				if e.ID != at+1 {
					return fmt.Errorf("%d follows %d", e.ID, at)
				}
				if at = e.ID; at == adders*each {
					return errEnough
				}
				return nil
			})
			if err != errEnough {
				t.Error(err)
			}
		})
	}
	for range adders {
		adding.Go(func() {
			for range each {
				l.Add(Event{Kind: "k"})
			}
		})
	}
	adding.Wait()
	reading.Wait()
	if l.Last() != adders*each {
		t.Errorf("the last is %d", l.Last())
	}
}

// A blocked reader does not delay writers, and gets an error when it was overtaken.
func TestASlowReaderIsDropped(t *testing.T) {
	l := New(0, 100, clock)
	l.Add(Event{})
	began, on, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		ended <- l.Follow(context.Background(), 0, func(Event) error {
			if first {
				first = false
				close(began)
				<-on
			}
			return nil
		})
	}()
	<-began
	for range 1000 {
		l.Add(Event{})
	}
	close(on)
	if err := <-ended; err != ErrSlow {
		t.Errorf("got %v", err)
	}
}

func TestReadersEnd(t *testing.T) {
	l := New(0, 10, clock)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	if err := l.Follow(ctx, Now, nil); err != errEnough {
		t.Errorf("got %v", err)
	}
	l.Add(Event{Kind: "k"})
	l.Close()
	l.Close()
	n := 0
	if err := l.Follow(t.Context(), 0, func(Event) error { n++; return nil }); err != ErrClosed || n != 1 {
		t.Errorf("got %v after %d events", err, n)
	}
	l.Add(Event{Kind: "k"}) // after Close
}

func TestIDsGrowFromDaemonToDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "starts")
	was := uint64(0)
	for range 3 {
		last, err := FirstAfterBoot(path)
		if err != nil || last <= was || last >= 1<<53 {
			t.Fatalf("got %d, %v", last, err)
		}
		l := filled(last, 5, 100)
		if was = l.Last(); was != last+100 {
			t.Errorf("the last is %d", was)
		}
	}
	for _, bad := range []string{"x", "-1", "99999999999999999999999999", "2097152"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if last, err := FirstAfterBoot(path); err == nil || last == 0 {
			t.Errorf("%q: got %d, %v", bad, last, err)
		}
	}
	if last, err := FirstAfterBoot(filepath.Join(path, "x")); err == nil || last == 0 {
		t.Errorf("got %d, %v", last, err)
	}
}

// The caller may modify its map afterwards.
func TestDetailsAreCopied(t *testing.T) {
	l := New(0, 10, clock)
	d := map[string]string{"a": "1"}
	l.Add(Event{Detail: d})
	d["a"] = "2"
	if got := collect(t, l, 0, 1)[0]; got.Detail["a"] != "1" {
		t.Errorf("got %v", got.Detail)
	}
}

func BenchmarkAdd(b *testing.B) {
	l := New(0, 0, time.Now)
	d := map[string]string{"snapshot": "py"}
	for b.Loop() {
		l.Add(Event{Kind: "sandbox.ready", Sandbox: "sb-1", Detail: d})
	}
}

// The list keeps thousands of events, so each is limited in size, even with data from a guest.
func TestEventsAreBounded(t *testing.T) {
	l := New(0, 10, clock)
	huge := strings.Repeat("\x1b\u202e", 1<<20)
	d := map[string]string{}
	for i := range 1000 {
		d[fmt.Sprint(i, huge[:1000])] = huge
	}
	l.Add(Event{Kind: huge, Sandbox: huge, Snapshot: huge, Owner: huge, Principal: huge, Detail: d})
	got := collect(t, l, 0, 1)[0]
	texts, n := []string{got.Kind, got.Sandbox, got.Snapshot, got.Owner, got.Principal}, 0
	for key, v := range got.Detail {
		texts = append(texts, key, v)
	}
	for _, s := range texts {
		if n += len(s); strings.ContainsAny(s, "\x1b\u202e") {
			t.Errorf("%.20q has control characters", s)
		}
	}
	if n > 100<<10 || len(d) != 1000 {
		t.Errorf("the event has %d bytes", n)
	}
}
