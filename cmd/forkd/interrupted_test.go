package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/forkd/forkd/client"
)

// The error of an interrupted pause or resume has the final state of the sandbox, not a transition.
func TestAnInterruptedPauseSaysWhatBecameOfIt(t *testing.T) {
	for name, row := range map[string]struct {
		states []string // one answer each; the last one stays
		want   string
	}{
		"it was done":         {[]string{"pausing", "pausing", "paused"}, "interrupted; sandbox sb-1 is paused"},
		"it was taken back":   {[]string{"pausing", "running"}, "interrupted; sandbox sb-1 is running"},
		"it ended":            {[]string{"pausing", ""}, "interrupted; sandbox sb-1 is not there any more"},
		"nobody tells":        {[]string{"broken"}, "context canceled"},
		"a resume was done":   {[]string{"resuming", "running"}, "interrupted; sandbox sb-1 is running"},
		"nobody tells more":   {[]string{"pausing", "broken"}, "interrupted; sandbox sb-1 is still pausing; `forkd inspect sb-1`"},
		"it stands still now": {[]string{"stalled"}, "interrupted; sandbox sb-1 is stalled"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				state := row.states[0]
				if len(row.states) > 1 {
					row.states = row.states[1:]
				}
				switch state {
				case "":
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusNotFound)
					fmt.Fprint(w, `{"error":"sandbox sb-1 not found","code":"not_found"}`)
				case "broken":
					panic(http.ErrAbortHandler)
				default:
					fmt.Fprintf(w, `{"id":"sb-1","status":%q}`, state)
				}
			}))
			defer s.Close()
			c, err := client.New(client.Options{URL: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			got := whatBecame(ctx, context.Canceled, c, "sb-1")
			if !strings.HasPrefix(got.Error(), row.want) || !errors.Is(got, context.Canceled) {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	other := errors.New("another")
	if err := whatBecame(t.Context(), other, nil, "sb-1"); err != other {
		t.Errorf("got %v", err)
	}
}
