package e2bapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/leaf/linetime"
	"github.com/forkd/forkd/internal/leaf/membudget"
)

type logLines struct {
	Logs []struct{ Message, Line string }
}

func (l logLines) texts() (texts []string) {
	for _, e := range l.Logs {
		texts = append(texts, e.Message+e.Line)
	}
	return texts
}

// charged sends a request with a memory budget, and returns the largest charge.
func (b *bench) charged(total int64, path string) (*httptest.ResponseRecorder, int64) {
	b.t.Helper()
	budget := membudget.New(total)
	account := budget.Account(total)
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("X-API-KEY", apiKey)
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r.WithContext(membudget.With(r.Context(), account)))
	held := account.Held()
	account.Close()
	if budget.Used() != 0 {
		b.t.Errorf("%d bytes stay charged", budget.Used())
	}
	return w, held
}

// A list of log lines uses the memory of its own lines, for a console of any size.
func TestLogsReadNoMoreThanTheyTell(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	var console strings.Builder
	for i := 0; console.Len() < 4<<20-100; i++ {
		fmt.Fprintf(&console, "line %d\r\n\r\n", i)
	}
	console.WriteString(strings.Repeat("\n", 4<<20-console.Len()))
	b.engine.ConsoleText = console.String() + "beyond the bytes that are read\n"
	at := "/v2/sandboxes/" + s.SandboxID + "/logs"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	few := want[logLines](t, b.do("GET", at+"?limit=3", ""), 200).texts()
	last := want[logLines](t, b.do("GET", at+"?limit=2&direction=backward", ""), 200).texts()
	runtime.ReadMemStats(&after)
	if made := (after.TotalAlloc - before.TotalAlloc) >> 20; made > 40 {
		t.Errorf("5 lines took %d MiB", made)
	}
	if strings.Join(few, ",") != "line 0,line 1,line 2" || len(last) != 2 || last[0] <= last[1] {
		t.Errorf("got %q and %q", few, last)
	}
	found := want[logLines](t, b.do("GET", at+"?search=+9999", ""), 200).texts()
	if len(found) == 0 || !strings.Contains(found[0], " 9999") {
		t.Errorf("found %q", found)
	}
	all := want[logLines](t, b.do("GET", "/sandboxes/"+s.SandboxID+"/logs", ""), 200).texts()
	if len(all) != 1000 || all[998] != last[1] || all[999] != last[0] {
		t.Errorf("%d lines, the last are %q", len(all), all[max(0, len(all)-2):])
	}
	for query, n := range map[string]int{"?limit=0": 0, "?level=error": 0, "?level=info": 1000} {
		if got := want[logLines](t, b.do("GET", at+query, ""), 200).Logs; len(got) != n || got == nil {
			t.Errorf("%s: %d lines", query, len(got))
		}
	}
}

// Lines are charged as they are stored. Without space the request is refused, and the charge is
// released.
func TestLogsAreCharged(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	b.engine.ConsoleText = strings.Repeat(strings.Repeat("x", 50<<10)+"\n", 80)
	for _, path := range []string{"/v2/sandboxes/" + s.SandboxID + "/logs", "/sandboxes/" + s.SandboxID + "/logs"} {
		if w, held := b.charged(64<<20, path); w.Code != 200 || held < 80*50<<10 || held > 3*80*50<<10 {
			t.Errorf("%s: status %d, %d bytes are charged", path, w.Code, held)
		}
		w, _ := b.charged(1<<20, path)
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "in flight") {
			t.Errorf("%s: without room: %d %s", path, w.Code, w.Body)
		}
	}
	// The last lines are charged, without the lines they replace.
	if w, held := b.charged(1<<20, "/v2/sandboxes/"+s.SandboxID+"/logs?direction=backward&limit=3"); w.Code != 200 ||
		held > 4*50<<10 {
		t.Errorf("three lines: status %d, %d bytes", w.Code, held)
	}
}

// Lines have their own times, and no marks.
func TestLogsHaveTimes(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b.engine.ConsoleText = string(append(linetime.AppendMark([]byte("old\n"), at), "new\n"...))
	type logs struct {
		Logs []struct {
			Timestamp time.Time
			Message   string
		}
	}
	got := want[logs](t, b.do("GET", "/v2/sandboxes/"+s.SandboxID+"/logs", ""), 200)
	if len(got.Logs) != 2 {
		t.Fatalf("%+v", got)
	}
	if old, last := got.Logs[0], got.Logs[1]; old.Message != "old" || old.Timestamp.IsZero() || last.Message != "new" || !last.Timestamp.Equal(at) {
		t.Errorf("%+v", got.Logs)
	}
}
