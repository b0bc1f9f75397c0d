package e2bapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/e2bapi/records"
)

// TestAStrangersSignatureCopiesNoRecords measures requests without a token in a store with large
// records.
func TestAStrangersSignatureCopiesNoRecords(t *testing.T) {
	b := newBench(t)
	metadata := map[string]string{}
	for i := range 1000 {
		metadata[fmt.Sprint(i)] = "value"
	}
	for i := range 100 {
		r := records.Record{ID: fmt.Sprintf("sb-%08x-0001", i), Template: "base", EnvdToken: fmt.Sprint("token", i), Metadata: metadata}
		if err := b.store.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	ask := func() int {
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/files?path=/x&signature=v1_"+strings.Repeat("A", 43), nil))
		return w.Code
	}
	if code := ask(); code != http.StatusUnauthorized { // builds the index
		t.Fatalf("a stranger is answered %d", code)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		ask()
	}
	runtime.ReadMemStats(&after)
	per := (after.TotalAlloc - before.TotalAlloc) / 10
	t.Logf("a request allocates %d bytes", per)
	if per > 256<<10 {
		t.Errorf("a request allocates %d bytes, want at most 256 KiB", per)
	}
}

func TestMetadataHasABound(t *testing.T) {
	b := newBench(t)
	wantError(t, b.do("POST", "/v2/sandboxes", `{"templateID":"base","metadata":{"a":"`+strings.Repeat("x", 70<<10)+`"}}`), 400, "metadata")
}
