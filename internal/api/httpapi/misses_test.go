package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/forkd/forkd/internal/api/auth"
	"github.com/forkd/forkd/internal/api/httpapi"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/api/ingress"
)

// TestGuessedIDsAreBounded has one client guess sandbox IDs while another client uses a sandbox.
func TestGuessedIDsAreBounded(t *testing.T) {
	b := newBench(t)
	id := b.fork("1")[0].ID
	ports := ingress.New(ingress.Config{Domain: ingress.DefaultDomain, Dialer: b.engine,
		Guard: fakeengine.Guard{Of: b.engine.Engine}})
	h := httpapi.New(httpapi.Options{Engine: fakeengine.Roles(b.engine), Images: b.images, Ingress: ports}).Handler(auth.Access{Token: token})
	ask := func(from, id string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = "80-" + id + "." + ingress.DefaultDomain
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const guesser = "192.0.2.7:1000"
	codes := map[int]int{}
	for i := range 1000 {
		w := ask(guesser, fmt.Sprintf("sb%08x0001", 0xabc00000+i))
		if codes[w.Code]++; w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
			t.Fatalf("without Retry-After: %v", w.Header())
		}
	}
	if codes[http.StatusTooManyRequests] < 500 {
		t.Errorf("1000 guesses ended with %v", codes)
	}
	for _, from := range []string{guesser, "192.0.2.8:1000"} { // an existing sandbox is never refused for guesses
		if w := ask(from, id); w.Code == http.StatusTooManyRequests {
			t.Errorf("%s for a sandbox that exists: %d %s", from, w.Code, w.Body)
		}
	}
	if w := ask("192.0.2.8:1000", "sbabc000000001"); w.Code == http.StatusTooManyRequests {
		t.Errorf("another source: %d", w.Code)
	}
	for i := range 200 { // addresses of one IPv6 network count together
		codes[ask(fmt.Sprintf("[2001:db8::%x]:80", i), "sbabc000000001").Code]++
	}
	if w := ask("[2001:db8::ffff]:80", "sbabc000000001"); w.Code != http.StatusTooManyRequests {
		t.Errorf("the next address of an IPv6 network: %d", w.Code)
	}
	// The table stays small for any number of sources, and each source gets an answer.
	for i := range 6000 {
		if w := ask(fmt.Sprintf("10.%d.%d.1:80", i/250, i%250), "sbabc000000001"); w.Code == http.StatusTooManyRequests {
			t.Fatalf("source %d: %d", i, w.Code)
		}
	}
}
