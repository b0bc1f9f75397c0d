package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
)

func heapMiB() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc >> 20)
}

// Clients that do not read answers cost the daemon the memory of the outputs once, without encoded
// copies.
func TestUnreadOutputsAreHeldOnce(t *testing.T) {
	t.Run("exec", func(t *testing.T) { leaveUnread(t, "exec", `{"args":["noise","8388608"]}`) })
	t.Run("eval", func(t *testing.T) { leaveUnread(t, "eval", `{"code":"noise"}`) })
}

func leaveUnread(t *testing.T, route, body string) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	server := httptest.NewServer(b.h)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	before := heapMiB()
	const n, each = 8, 8 << 20
	for range n {
		r, _ := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/sandboxes/"+id+"/"+route,
			strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := new(http.Transport).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() }) // and it is not read
	}
	if held := heapMiB() - before; held > n*each*5/4>>20 {
		t.Errorf("%d unread answers of %d MiB hold %d MiB", n, each>>20, held)
	} else {
		t.Logf("held: %d MiB", held)
	}
}

// A client that does not read is disconnected, and its memory is free for the next request.
func TestABlockedAnswerEndsAndFreesItsShare(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	h := httpapi.NewLimited(httpapi.Options{Engine: fakeengine.Roles(b.engine), Images: b.images}, httpapi.Limits{Header: time.Minute,
		Body: time.Minute, Swallow: time.Minute, Waiting: 10, Write: time.Second, Memory: 18 << 20})
	server := httptest.NewServer(h.Handler(auth.Access{Token: token}))
	t.Cleanup(server.Close)
	ask := func() *http.Response {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/sandboxes/"+id+"/exec",
			strings.NewReader(`{"args":["spam","8388608"]}`))
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := new(http.Transport).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	blocked := ask()
	second := ask()
	if second.StatusCode != api.CodeBusy.Status() || second.Header.Get("Retry-After") == "" {
		t.Errorf("over the share: %s, Retry-After %q", second.Status, second.Header.Get("Retry-After"))
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		if resp := ask(); resp.StatusCode == http.StatusOK {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the share is not freed")
		}
	}
	if _, err := io.Copy(io.Discard, blocked.Body); err == nil {
		t.Error("the answer that was not taken is complete")
	}
}

// The answer of an evaluation is charged as it arrives. Without space it is refused, and its charge
// is released, and the error says that the code has run: clients must not retry it.
func TestEvalIsChargedAsItComes(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	for memory, want := range map[int64]int{20 << 20: api.CodeNoMemory.Status(), 48 << 20: http.StatusOK} {
		h := httpapi.NewLimited(httpapi.Options{Engine: fakeengine.Roles(b.engine), Images: b.images}, httpapi.Limits{Header: time.Minute,
			Body: time.Minute, Swallow: time.Minute, Waiting: 10, Write: time.Minute, Memory: memory})
		r := httptest.NewRequest("POST", "/v1/sandboxes/"+id+"/eval", strings.NewReader(`{"code":"noise"}`))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.Handler(auth.Access{Token: token}).ServeHTTP(w, r)
		if w.Code != want || h.Charged() != 0 {
			t.Errorf("with %d MiB: status %d, %d bytes stay charged", memory>>20, w.Code, h.Charged())
		}
		if head := w.Header(); w.Code != http.StatusOK && (head.Get("Should-Retry") != "false" || head.Get("Retry-After") != "" ||
			!strings.Contains(w.Body.String(), `"reason":"answer_no_room"`)) {
			t.Errorf("clients may retry it: %v, %s", head, w.Body)
		}
	}
}
