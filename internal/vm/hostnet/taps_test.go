package hostnet

import (
	"errors"
	"testing"
)

func TestAllowedTaps(t *testing.T) {
	taps := Taps{"tap0", "cni-*", "*"}
	for name, want := range map[string]bool{
		"tap0": true, "tap01": false, "tap": false, "cni-7": true, "cni-": true, "cni": false, "eth0": false, "": false,
	} {
		if got := taps.Allows(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	for _, bad := range []string{"", "*", "a b", "tap%d", "../x", "a234567890123456", "tap*0", "fd:3"} {
		if CheckPattern(bad) == nil {
			t.Errorf("pattern %q is taken", bad)
		}
	}
	for _, good := range []string{"tap0", "cni-*", "a23456789012345"} {
		if err := CheckPattern(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if _, err := taps.Open("eth0"); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("got %v", err)
	}
	if _, err := taps.Open("tap%d"); err == nil {
		t.Error("a pattern of the kernel's is a name")
	}
}
