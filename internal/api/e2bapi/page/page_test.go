package page

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func key(s string) Key { return Key{time.Unix(int64(len(s)), 7).UTC(), s} }

func TestPages(t *testing.T) {
	all := []string{"a", "bb", "bc", "ddd"}
	for _, oldest := range []bool{true, false} {
		var seen []string
		token := ""
		for range 3 {
			some, next, err := Of(all, token, 2, key, oldest)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, some...)
			if token = next; next == "" {
				break
			}
		}
		if !slices.Equal(seen, all) || token != "" {
			t.Errorf("got %v, and then %q", seen, token)
		}
		slices.Reverse(all)
	}
	// the last entry of the page was removed meanwhile
	if some, _, err := Of([]string{"a", "ddd"}, key("bc").Token(), 2, key, true); err != nil || len(some) != 1 {
		t.Errorf("got %v, %v", some, err)
	}
	for _, token := range []string{"!", "YQ", "MS4yLg=", strings.Repeat("A", 1000)} {
		if _, _, err := Of(all, token, 2, key, true); err == nil {
			t.Errorf("%q is a token", token)
		}
	}
	for s, want := range map[string]int{"": 100, "1": 1, "100": 100, "0": 0, "101": 0, "x": 0, "-1": 0} {
		if n, err := Limit(s); n != want || (err == nil) != (want > 0) {
			t.Errorf("limit %q: %d, %v", s, n, err)
		}
	}
}

// As captured from a client: metadata=a%252520b%3Dc%252526d.
func TestMetadataIsEscapedMoreThanOnce(t *testing.T) {
	q, err := url.ParseQuery("metadata=a%252520b%3Dc%252526d")
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]map[string]string{
		q.Get("metadata"): {"a b": "c&d"}, "": nil, "a=b&c=": {"a": "b", "c": ""}, "a=b=c": {"a": "b=c"},
	} {
		if got, err := Metadata(s); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"a", "%zz", "a=%25zz"} {
		if got, err := Metadata(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(key("a").Token(), "a=b")
	f.Fuzz(func(t *testing.T, token, metadata string) {
		if k, err := Parse(token); err == nil {
			if again, err := Parse(k.Token()); len(token) < maxToken/2 && (err != nil || again != k) {
				t.Errorf("%+v became %+v, %v", k, again, err)
			}
		}
		_, _ = Metadata(metadata)
	})
}
