package cors

import "testing"

func TestOrigins(t *testing.T) {
	for origin, ok := range map[string]bool{
		"https://app.example.com": true, "http://localhost:3000": true,
		"*": false, "app.example.com": false, "https://a/": false, "https://a/b": false, "https://u@a": false,
		"null": false, "": false, "ftp://a": false,
	} {
		if _, err := Parse([]string{origin}); (err == nil) != ok {
			t.Errorf("%q: %v", origin, err)
		}
	}
}
