package linux

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestItNamesTheFeatureAndTheVersion(t *testing.T) {
	err := fmt.Errorf("track guest memory: %w", &Unsupported{Feature: "userfaultfd", Since: "6.7", Err: unix.EINVAL})
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		t.Errorf("%v is of another kind", err)
	}
	const want = "track guest memory: userfaultfd is not available: it needs Linux 6.7 (invalid argument)"
	if err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if errors.Is(errors.New("broken"), errors.ErrUnsupported) {
		t.Error("any error is of this kind")
	}
}
