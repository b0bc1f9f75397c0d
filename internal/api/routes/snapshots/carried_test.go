package snapshots

import (
	"slices"
	"testing"
)

// tokens are facts that consist of a token.
type tokens map[string]string

func (c tokens) Carried(id string) ([]byte, string, error) { return []byte(c[id]), c[id], nil }
func (c tokens) Receive(string, []byte) error              { return nil }
func (c tokens) Remove(string) error                       { return nil }

// The token of a sandbox may leave the daemon in the snapshot that the sandbox is paused in, and in no other one.
func TestWithoutOwn(t *testing.T) {
	all, c := []string{"ours", "other"}, tokens{"sb-aaaaaaaaaaaaaaaa": "ours"}
	for tag, want := range map[string]int{
		"pause-sb-aaaaaaaaaaaaaaaa-3": 1, "pause-sb-bbbbbbbbbbbbbbbb-3": 2, "pause-sb-aaaaaaaaaaaaaaaa": 2, "pause-": 2,
		"sb-aaaaaaaaaaaaaaaa-3": 2, "py": 2,
	} {
		got := withoutOwn(all, c, tag)
		if len(got) != want || !slices.Contains(got, "other") {
			t.Errorf("%s: %v", tag, got)
		}
	}
	if len(all) != 2 || len(withoutOwn(all, nil, "pause-sb-aaaaaaaaaaaaaaaa-3")) != 2 {
		t.Error("the list has changed")
	}
}
