package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// The event of a sandbox's end wakes wait, long before it would ask again. A broken stream continues
// after the last event.
func TestWaitWakesWithAnEvent(t *testing.T) {
	var gone atomic.Bool
	var streams atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sandboxes/{id}", func(w http.ResponseWriter, _ *http.Request) {
		if gone.Load() {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(api.Error{Code: api.CodeNotFound, Message: "sandbox sb-1-0001 not found"})
			return
		}
		_ = json.NewEncoder(w).Encode(api.SandboxInfo{ID: "sb-1-0001", Status: api.SandboxRunning})
	})
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		after := r.URL.Query().Get("after")
		switch streams.Add(1) {
		case 1: // it breaks off after the event of another sandbox
			if after != "0" {
				t.Errorf("the first stream begins after %q", after)
			}
			fmt.Fprint(w, "event: sandbox.ended\ndata: {\"id\":7,\"kind\":\"sandbox.ended\",\"sandbox\":\"sb-2-0001\"}\n\n")
			return
		case 2:
			if after != "7" {
				t.Errorf("the second stream begins after %q", after)
			}
			gone.Store(true)
			fmt.Fprint(w, "event: sandbox.ended\ndata: {\"id\":8,\"kind\":\"sandbox.ended\",\"sandbox\":\"sb-1-0001\"}\n\n")
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	w := &waiting{app: &app{Printer: ui.Printer{Out: &out}}, c: c, ids: []string{"sb10001"}, ended: map[string]ending{}}
	began := time.Now()
	if err := w.run(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took >= checkEvery {
		t.Errorf("it took %s", took)
	}
	if out.String() != "sb10001 ended\n" || streams.Load() != 2 {
		t.Errorf("got %q after %d streams", out.String(), streams.Load())
	}
}
