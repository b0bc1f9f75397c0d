package settings

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/sandbox"
)

type noImages struct{}

func (noImages) Image(context.Context, string) (sandbox.Image, error) {
	return sandbox.Image{}, sandbox.ErrNotFound
}

func least() Config {
	return Config{
		StoreDir: "/store", RunDir: "/run/forkd", VMMBinary: "/bin/forkd-vmm", Images: noImages{},
		OpenKVM: func() (*os.File, error) { return nil, os.ErrNotExist },
	}
}

func TestComplete(t *testing.T) {
	longest := "/" + strings.Repeat("x", 107-longestSocket-1)
	for _, c := range []struct {
		name   string
		change func(*Config)
		says   string // empty: it is right
	}{
		{"the least that is needed", func(*Config) {}, ""},
		{"relative store directory", func(c *Config) { c.StoreDir = "store" }, "must be absolute"},
		{"relative run directory", func(c *Config) { c.RunDir = "run" }, "must be absolute"},
		{"the longest run directory", func(c *Config) { c.RunDir = longest }, ""},
		{"a longer run directory", func(c *Config) { c.RunDir = longest + "x" }, "too long for sockets"},
		{"no VMM", func(c *Config) { c.VMMBinary = "" }, "no VMM"},
		{"no KVM", func(c *Config) { c.OpenKVM = nil }, "no way to open KVM"},
		{"no images", func(c *Config) { c.Images = nil }, "no image store"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := least()
			c.change(&config)
			err := config.Complete()
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestDefaultsLeaveWhatIsSet(t *testing.T) {
	c := least()
	c.BranchTimeout, c.Branches = time.Second, 7
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if c.BranchTimeout != time.Second || c.Branches != 7 {
		t.Errorf("what was set became %s and %d branches", c.BranchTimeout, c.Branches)
	}
	if c.RestoreTimeout != time.Minute || c.GuestFork != sandbox.DefaultTree || c.Concurrency < 2 {
		t.Errorf("what was zero became %s, %+v, %d", c.RestoreTimeout, c.GuestFork, c.Concurrency)
	}
	if c.Observer == nil || c.Logger == nil || c.Now == nil || c.Rand == nil || c.MemAvailable == nil {
		t.Error("a function that others call is nil")
	}
}

func TestRandomTellsWhenThereIsNoMore(t *testing.T) {
	c := least()
	c.Rand = bytes.NewReader([]byte("abc"))
	random := c.Random()
	if b, err := random(2); err != nil || string(b) != "ab" {
		t.Errorf("got %q, %v", b, err)
	}
	if b, err := random(2); err == nil {
		t.Errorf("got %q of one byte that was left", b)
	}
}
