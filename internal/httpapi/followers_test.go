package httpapi_test

import (
	"net/http"
	"testing"
)

// TestOneTenantsFollowersDoNotKeepOthersOut has a tenant follow events until it is refused.
func TestOneTenantsFollowersDoNotKeepOthersOut(t *testing.T) {
	b := newEventBench(t, 100)
	follow := func(tenant string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(tenantHeader, tenant)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode
	}
	n := 0
	for ; follow("evil") == http.StatusOK; n++ {
		if n > 300 {
			t.Fatal("no limit holds")
		}
	}
	if n > 128 {
		t.Errorf("one tenant holds %d of 256 slots", n)
	}
	for range 8 {
		if code := follow("acme"); code != http.StatusOK {
			t.Fatalf("another tenant gets %d", code)
		}
	}
	if code := follow(""); code != http.StatusOK {
		t.Errorf("the operator gets %d", code)
	}
}
