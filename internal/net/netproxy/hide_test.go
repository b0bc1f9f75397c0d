package netproxy

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzHide tries headers of answers: they never contain the text of a long enough secret.
func FuzzHide(f *testing.F) {
	f.Add("Bearer s3cret-token-0123456789", "/?t=s3cret-token-0123456789", "x")
	f.Add("aaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaa", "aaaaaaaa")
	f.Add("********", "***", "*****")
	f.Add("short", "a short one", "")
	f.Fuzz(func(t *testing.T, value, one, two string) {
		known := secretsOf(map[string]string{"a": value})
		h := http.Header{"One": {one, value + one, one + value}, "Two": {two}}
		known.hide(h)
		for name, values := range h {
			for _, v := range values {
				if len(value) >= shortest && strings.Contains(v, value) && !strings.Contains(value, "*") {
					t.Fatalf("%s: %q still has %q", name, v, value)
				}
			}
		}
	})
}
