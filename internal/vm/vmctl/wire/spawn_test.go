package wire

import (
	"testing"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/leaf/vmspec"
)

func TestArgumentsComeBack(t *testing.T) {
	shape := vmspec.Shape{MemoryMiB: 64, VCPUs: 2, Disks: 1}
	for _, s := range []Start{
		{Shape: shape, Seccomp: seccomp.Off}, {Shape: shape, Prewarm: true, Seccomp: seccomp.On},
		{Shape: shape, Seccomp: seccomp.Trap},
	} {
		args, err := s.Args()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseArgs(args); err != nil || got != s {
			t.Errorf("%q: got %+v, %v, want %+v", args, got, err, s)
		}
	}
	args, err := (Start{Shape: shape}).Args()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParseArgs(args); err != nil || got.Seccomp != seccomp.Off {
		t.Errorf("nothing said: %+v, %v", got, err)
	}
	for _, more := range []string{"bogus", "seccomp=", "seccomp=perhaps", "--help"} {
		if got, err := ParseArgs(append(args, more)); err == nil {
			t.Errorf("%q is %+v", more, got)
		}
	}
}
