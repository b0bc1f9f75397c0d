package httpapi_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

// forkLines requests a stream.
func (b *bench) forkLines(t *testing.T, body string) (*httptest.ResponseRecorder, []api.ForkLine) {
	t.Helper()
	r := httptest.NewRequest("POST", "/v1/sandboxes", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/x-ndjson")
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	if w.Header().Get("Content-Type") != "application/x-ndjson" {
		return w, nil
	}
	var lines []api.ForkLine
	for text := range strings.Lines(w.Body.String()) {
		var l api.ForkLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		lines = append(lines, l)
	}
	return w, lines
}

func TestForkStreamsItsChildren(t *testing.T) {
	b := newBench(t)
	b.engine.Limit = 3
	w, lines := b.forkLines(t, `{"snapshot_tag":"py","n":5}`)
	if w.Code != 201 || len(lines) != 6 {
		t.Fatalf("status %d, %d lines: %s", w.Code, len(lines), w.Body)
	}
	for i, l := range lines[:5] {
		if l.Child == nil || l.Child.Index != i+1 || (l.Child.Error != "") != (i >= 3) || l.Fork != nil || l.Error != nil {
			t.Errorf("line %d is %+v", i, l)
		}
	}
	if last := lines[5]; last.Fork == nil || last.Fork.ReadyWallMS != 10 || last.Fork.ArmedWallMS != 5 || last.Child != nil {
		t.Errorf("the last line is %+v", last)
	}
	// No child can be made: each child has a line, and the last line has the error of a plain
	// answer.
	if _, lines = b.forkLines(t, `{"snapshot_tag":"py","n":2}`); len(lines) != 3 || lines[2].Error == nil ||
		lines[2].Error.Code != api.CodeNoMemory {
		t.Errorf("got %+v", lines)
	}
	// A refused fork has its plain error status.
	w, _ = b.forkLines(t, `{"snapshot_tag":"none"}`)
	wantError(t, w, api.CodeNotFound)
	w, _ = b.forkLines(t, `{"snapshot_tag":"py","n":-1}`)
	wantError(t, w, api.CodeInvalid)
}
