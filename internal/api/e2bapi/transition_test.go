package e2bapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// held makes the next transition of a sandbox last until the returned function is called.
func (b *bench) held() (reached <-chan sandbox.Status, release func()) {
	at, gate := make(chan sandbox.Status, 8), make(chan struct{})
	b.engine.Moving = func(_ string, to sandbox.Status) {
		at <- to
		<-gate
	}
	return at, sync.OnceFunc(func() { close(gate) })
}

// duringAPause sends requests while a sandbox is being paused. It returns their answers by name.
func duringAPause(b *bench, s created, requests map[string]func() answer) map[string]answer {
	b.t.Helper()
	reached, release := b.held()
	defer release()
	var all sync.WaitGroup
	all.Go(func() { want[any](b.t, b.do("POST", "/sandboxes/"+s.SandboxID+"/pause", ``), 204) })
	<-reached
	var mu sync.Mutex
	answers, sent := map[string]answer{}, make(chan string, len(requests))
	for name, do := range requests {
		all.Go(func() {
			sent <- name
			a := do()
			mu.Lock()
			defer mu.Unlock()
			answers[name] = a
		})
	}
	for range requests {
		<-sent
	}
	time.Sleep(100 * time.Millisecond) // elapses: requests that were refused would have their answers
	release()
	all.Wait()
	return answers
}

// TestRequestsWaitForATransition sends every kind of request while a sandbox is being paused.
func TestRequestsWaitForATransition(t *testing.T) {
	b := newBench(t)
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	defer guest.Close()
	u, _ := url.Parse(guest.URL)
	s := b.create(`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
	path := "/sandboxes/" + s.SandboxID
	requests := map[string]func() answer{
		"health":     func() answer { return b.envd(s, "GET", "/health", "") },
		"connect":    func() answer { return b.do("POST", path+"/connect", `{"timeout":60}`) },
		"connect v2": func() answer { return b.do("POST", "/v2"+path+"/connect", `{}`) },
		"resume":     func() answer { return b.do("POST", path+"/resume", `{"timeout":60}`) },
		"timeout":    func() answer { return b.do("POST", path+"/timeout", `{"timeout":60}`) },
		"list": func() answer {
			return b.envd(s, "POST", "/filesystem.Filesystem/ListDir", `{"path":"/"}`, "Content-Type", "application/json")
		},
	}
	for i := range 6 {
		requests[fmt.Sprintf("get %d", i)] = func() answer { return b.envd(s, "GET", "/envs", "") }
		requests[fmt.Sprintf("port %d", i)] = func() answer {
			return b.do("GET", "/", "", "E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", u.Port())
		}
	}
	for name, a := range duringAPause(b, s, requests) {
		if a.StatusCode >= 300 {
			t.Errorf("%s: %s %s", name, a.Status, a.body)
		}
	}
	if b.engine.Resumed != 1 {
		t.Errorf("%d resumes, want 1", b.engine.Resumed)
	}
}

// TestASandboxThatIsBeingPausedIsPaused reads a sandbox in a long transition.
func TestASandboxThatIsBeingPausedIsPaused(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	answers := duringAPause(b, s, map[string]func() answer{
		"info":   func() answer { return b.do("GET", "/sandboxes/"+s.SandboxID, "") },
		"health": func() answer { return b.envd(s, "GET", "/health", "") },
		"pause":  func() answer { return b.do("POST", "/sandboxes/"+s.SandboxID+"/pause", ``) },
	})
	if d := want[map[string]any](t, answers["info"], 200); d["state"] != "paused" {
		t.Errorf("its state is %v", d["state"])
	}
	if a := answers["health"]; a.StatusCode != 502 { // clients take this status for a paused sandbox
		t.Errorf("health: %s %s", a.Status, a.body)
	}
	wantError(t, answers["pause"], 409, "already paused")
}

// TestManyConnectsResumeOnce connects with several timeouts. The latest end applies.
func TestManyConnectsResumeOnce(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base"}`)
	path := "/sandboxes/" + s.SandboxID
	want[any](t, b.do("POST", path+"/pause", ``), 204)
	reached, release := b.held()
	defer release()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if a := b.do("POST", path+"/connect", fmt.Sprintf(`{"timeout":%d}`, 100+100*i)); a.StatusCode >= 300 {
				t.Errorf("connect: %s %s", a.Status, a.body)
			}
		})
	}
	<-reached
	release()
	all.Wait()
	if b.engine.Resumed != 1 {
		t.Errorf("%d resumes, want 1", b.engine.Resumed)
	}
	if got := b.record(s).End.Sub(b.clock.now()); got != 600*time.Second {
		t.Errorf("it ends in %s, want 10m", got)
	}
}

// TestAWakeHasAnEnd resumes a sandbox by traffic after its former end.
func TestAWakeHasAnEnd(t *testing.T) {
	b := newBench(t)
	s := b.create(`{"templateID":"base","timeout":20,"autoPause":true,"autoResume":{"enabled":true}}`)
	path := "/sandboxes/" + s.SandboxID
	first := want[struct{ EndAt time.Time }](t, b.do("GET", path, ""), 200).EndAt
	want[any](t, b.do("POST", path+"/pause", ``), 204)
	if a := b.envd(s, "GET", "/envs", ""); a.StatusCode != 200 {
		t.Fatalf("got %s %s", a.Status, a.body)
	}
	woken := want[struct{ EndAt time.Time }](t, b.do("GET", path, ""), 200).EndAt
	listed := want[[]struct{ EndAt time.Time }](t, b.do("GET", "/v2/sandboxes", ""), 200)[0].EndAt
	if !woken.After(first) || !listed.Equal(woken) {
		t.Errorf("it ends at %s, in the list at %s; before its pause that was %s", woken, listed, first)
	}
}

// TestAReadThatAPauseCutsOffIsSentAgain pauses a sandbox while a server in it works on a request.
func TestAReadThatAPauseCutsOffIsSentAgain(t *testing.T) {
	b := newBench(t)
	arrived, first := make(chan struct{}), true
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			close(arrived)
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, "served")
	}))
	defer guest.Close()
	u, _ := url.Parse(guest.URL)
	s := b.create(`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
	var all sync.WaitGroup
	all.Go(func() {
		a := b.do("GET", "/", "", "E2b-Sandbox-Id", s.SandboxID, "E2b-Sandbox-Port", u.Port())
		if a.StatusCode != 200 || a.body != "served" {
			t.Errorf("got %s %s", a.Status, a.body)
		}
	})
	<-arrived
	want[any](t, b.do("POST", "/sandboxes/"+s.SandboxID+"/pause", ``), 204)
	all.Wait()
}
