package kernelpkg

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/images/debtool"
)

// TestDebianKernels reads the real packages of each series in the host's package sources.
func TestDebianKernels(t *testing.T) {
	if os.Getenv("FORKD_TEST_IMAGE") != "1" {
		t.Skip("FORKD_TEST_IMAGE is not 1: downloads kernel packages")
	}
	cache := os.Getenv("FORKD_TEST_CACHE")
	if cache == "" {
		cache = t.TempDir()
	}
	c, err := Find(context.Background(), debtool.Run, os.Getenv("FORKD_TEST_KERNEL"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := Fetch(context.Background(), debtool.Run, c, cache)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	p, err := OpenDeb(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if p.Version != c.Version {
		t.Errorf("version %q, want %q", p.Version, c.Version)
	}
	opened := time.Now()
	elf, err := p.Vmlinux(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: read in %v, vmlinux of %d bytes in %v, VMGENID=%q", p.Release, opened.Sub(start), len(elf), time.Since(opened), p.Config("VMGENID"))
	mods, err := p.Modules(GuestModules()...)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range mods {
		t.Logf("%8d %s", len(m.Data), m.File)
		info, err := parseModinfo(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range info.depends {
			if !seen[d] && !p.builtin[d] {
				t.Errorf("%s comes before %s", m.File, d)
			}
		}
		seen[moduleName(m.File)] = true
	}
	for _, want := range GuestModules() {
		if !seen[want] && !p.builtin[want] {
			t.Errorf("module %s is not there", want)
		}
	}
}
