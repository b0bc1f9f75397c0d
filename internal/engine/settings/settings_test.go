package settings

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
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
		says   string // empty: it is valid
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
	if c.Observer == nil || c.Logger == nil || c.Now == nil || c.Rand == nil {
		t.Error("a function that others call is nil")
	}
}

func TestDefaultsOfAdmission(t *testing.T) {
	c := least()
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if c.MemoryOvercommit != 32 || c.DiskOvercommit != 0 || *c.Pressure != DefaultPressure() {
		t.Errorf("%g, %g, %+v", c.MemoryOvercommit, c.DiskOvercommit, c.Pressure)
	}
	c.Pressure = &Pressure{}
	if err := c.Complete(); err != nil || *c.Pressure != (Pressure{}) {
		t.Errorf("what was turned off became %+v, %v", c.Pressure, err)
	}
}

func TestParsePressure(t *testing.T) {
	memory := DefaultPressure().Memory
	for words, want := range map[string]Pressure{
		"":                         {Memory: memory},
		"memory=10:40":             {Memory: Bound{10, 40}},
		"memory=off":               {},
		"io=80: cpu=:95.5":         {CPU: Bound{None: 95.5}, Memory: memory, IO: Bound{Fewer: 80}},
		"cpu=50:60 cpu=70:70":      {CPU: Bound{70, 70}, Memory: memory},
		"memory=off io=1:2 io=off": {},
	} {
		if got, err := ParsePressure(strings.Fields(words)); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", words, got, err, want)
		}
	}
	for word, says := range map[string]string{
		"disk=1:2": "want cpu=, memory= or io=", "memory": "want FEWER:NONE", "memory=": "want FEWER:NONE",
		"memory=5": "want FEWER:NONE", "memory=:": "want FEWER:NONE", "io=x:1": "no percentage", "io=1:101": "no percentage",
		"io=NaN:": "no percentage", "io=0:5": "no percentage", "cpu=60:50": "more than none", "": "want cpu=",
	} {
		if _, err := ParsePressure([]string{word}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", word, err, says)
		}
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
