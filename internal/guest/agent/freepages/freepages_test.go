package freepages

import (
	"os"
	"path/filepath"
	"testing"
)

// guest returns a root directory with a balloon and its driver, and a function for the writes to
// the driver.
func guest(t *testing.T) (r *Reporter, told func() string, free *int64) {
	t.Helper()
	r = New(t.TempDir(), t.Logf)
	free = new(int64)
	*free = 1 << 30
	r.memory = func() int64 { return *free }
	if err := os.MkdirAll(filepath.Join(r.dir, "virtio5"), 0o755); err != nil {
		t.Fatal(err)
	}
	told = func() (said string) {
		for _, name := range []string{"bind", "unbind"} {
			b, _ := os.ReadFile(filepath.Join(r.dir, name))
			if len(b) > 0 {
				said += name + " " + string(b)
			}
			if err := os.WriteFile(filepath.Join(r.dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return said
	}
	told()
	return r, told, free
}

func TestReportsWaitUntilMuchWasUsed(t *testing.T) {
	for name, c := range map[string]struct {
		had, free int64
		want      string
	}{
		"nothing":              {0, 1 << 30, ""},
		"a program of 63 MiB":  {63 << 20, 1 << 30, ""},
		"a program of 64 MiB":  {64 << 20, 1 << 30, "bind virtio5"},
		"64 MiB that are left": {0, 1<<30 - 64<<20, "bind virtio5"},
		"more free than there": {0, 2 << 30, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, told, free := guest(t)
			r.Look(1 << 30)
			if got := told(); got != "" {
				t.Errorf("before: %q", got)
			}
			if err := r.Off(); err != nil {
				t.Fatal(err)
			}
			if got := told(); got != "unbind virtio5" {
				t.Errorf("off: %q", got)
			}
			*free = c.free
			r.Look(c.had)
			if got := told(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestTheDriverComesBackOnce(t *testing.T) {
	r, told, _ := guest(t)
	if err := r.Off(); err != nil {
		t.Fatal(err)
	}
	told()
	r.Look(Much)
	r.Look(Much)
	if got := told(); got != "bind virtio5" {
		t.Errorf("told %q", got)
	}
	if err := r.Off(); err != nil {
		t.Fatal(err)
	}
	if got := told(); got != "unbind virtio5" {
		t.Errorf("off again: %q", got)
	}
}

func TestAGuestWithoutABalloon(t *testing.T) {
	r := New(t.TempDir(), t.Logf)
	if err := r.Off(); err != nil {
		t.Error(err)
	}
	r.Look(1 << 40)
	if _, err := os.Stat(r.dir); err == nil {
		t.Error("something is there now")
	}
}

func TestFreeMemoryIsTold(t *testing.T) {
	if n := freeMemory(); n < 1<<20 {
		t.Errorf("%d bytes are free", n)
	}
}
