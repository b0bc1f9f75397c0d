package ellipsis

import "testing"

func TestClipIsNotCutInsideOfACharacter(t *testing.T) {
	for _, c := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"short", "abc", 3, "abc"},
		{"long", "abcd", 3, "abc…"},
		{"in a character", "aé", 2, "a…"},
		{"behind a character", "aéb", 3, "aé…"},
		{"nothing but one", "漢", 1, "…"},
		{"no UTF-8", "a\xff\xffb", 3, "a…"},
		{"empty", "", 0, ""},
	} {
		if got := Clip(c.text, c.limit); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
