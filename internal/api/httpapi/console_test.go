package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/leaf/linetime"
)

func TestConsoleFollowedToItsEnd(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	for _, bad := range []string{"follow=perhaps", "follow=true&tail=-1", "follow=true&tail=x", "tail=3", "timestamps=x", "since=10m"} {
		wantError(t, b.do("GET", "/v1/sandboxes/"+id+"/console?"+bad, ""), api.CodeInvalid)
	}
	wantError(t, b.do("GET", "/v1/sandboxes/sb-none/console?follow=true", ""), api.CodeNotFound)
	b.engine.Fail(id, "it ended")
	w := b.do("GET", "/v1/sandboxes/"+id+"/console?follow=true&tail=1", "")
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "Linux") || !strings.Contains(w.Body.String(), "ready") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if h := w.Header(); h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", h)
	}
}

// The times of a console's lines are shown and selected on request, and its marks are never sent.
func TestTimesOfAConsole(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	early := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	text := append(linetime.AppendMark([]byte("old\n"), early), "one\n"...)
	b.engine.ConsoleText = string(append(linetime.AppendMark(text, early.Add(time.Hour)), "two\n"...))
	b.engine.Fail(id, "it ended")
	for query, want := range map[string]string{
		"":                                  "old\none\ntwo\n",
		"timestamps=true":                   "- old\n2026-01-02T03:04:05.000Z one\n2026-01-02T04:04:05.000Z two\n",
		"since=2026-01-02T04:00:00Z":        "old\ntwo\n",
		"since=2026-01-02T05:04:05%2B01:00": "old\ntwo\n",
	} {
		for _, follow := range []string{"", "follow=true&"} {
			if w := b.do("GET", "/v1/sandboxes/"+id+"/console?"+follow+query, ""); w.Code != http.StatusOK || w.Body.String() != want {
				t.Errorf("%s%s: %d %q, want %q", follow, query, w.Code, w.Body, want)
			}
		}
	}
}
