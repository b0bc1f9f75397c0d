package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// attach begins to follow events as a tenant. An empty tenant means the operator.
func (b *eventBench) attach(tenant string) *http.Response {
	b.t.Helper()
	r, _ := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+"/v1/events", nil)
	r.Header.Set(tenantHeader, tenant)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// Neither one tenant nor several tenants together can take the slots of others and of the operator.
func TestEventFollowersAreShared(t *testing.T) {
	b := newEventBench(t, 10)
	held := map[string]int{}
	for _, tenant := range []string{"evil", "evil2", "evil3"} {
		for held[tenant] < 300 {
			resp := b.attach(tenant)
			if resp.StatusCode == http.StatusOK {
				held[tenant]++
				continue
			}
			text, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
				!strings.Contains(string(text), "256") {
				t.Fatalf("got %s, %v, %s", resp.Status, resp.Header, text)
			}
			break
		}
	}
	t.Logf("held: %v", held)
	if held["evil"] > 128 {
		t.Errorf("one tenant holds %d of 256", held["evil"])
	}
	for i := range 20 {
		if resp := b.attach(fmt.Sprint("honest", i)); resp.StatusCode != http.StatusOK {
			t.Errorf("honest tenant %d: got %s", i, resp.Status)
		}
	}
	if resp := b.attach(""); resp.StatusCode != http.StatusOK {
		t.Errorf("the operator: got %s", resp.Status)
	}
}
