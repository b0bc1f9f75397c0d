package tenancy

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Weights take effect immediately and for the next daemon. A weight that cannot be applied or written is not
// kept.
func TestWeightsOutliveTheDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenants.json")
	var applied map[string]int
	var refuses error
	open := func() *Weights {
		applied = map[string]int{}
		w, err := OpenWeights(path, func(tenant string, weight int) error {
			if refuses == nil {
				applied[tenant] = weight
			}
			return refuses
		})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	want := func(w *Weights, tenant string, weight int) {
		t.Helper()
		if got, err := w.Of(tenant); err != nil || got != weight {
			t.Errorf("%s has %d, %v, want %d", tenant, got, err, weight)
		}
	}
	w := open()
	for tenant, weight := range map[string]int{"acme": 300, "low": 1, "plain": sandbox.DefaultCPUWeight} {
		if err := w.Set(tenant, weight); err != nil {
			t.Fatal(err)
		}
		want(w, tenant, weight)
	}
	w = open()
	if err := w.Apply(); err != nil || !maps.Equal(applied, map[string]int{"acme": 300, "low": 1}) {
		t.Errorf("the next daemon applies %v, %v", applied, err)
	}
	want(w, "acme", 300)
	want(w, "plain", sandbox.DefaultCPUWeight)

	refuses = errors.New("no")
	if err := w.Set("acme", 50); !errors.Is(err, refuses) {
		t.Errorf("of one that cannot be: %v", err)
	}
	refuses = nil
	want(open(), "acme", 300)
	w = open()
	if err := os.MkdirAll(path+".new/x", 0o700); err != nil { // path of the new file
		t.Fatal(err)
	}
	if err := w.Set("acme", 50); err == nil {
		t.Error("a file that cannot be written is no error")
	}
	want(w, "acme", 300)
	if applied["acme"] != 300 {
		t.Errorf("applied is %d", applied["acme"])
	}
}

func TestWeightsThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenWeights(filepath.Join(dir, "none.json"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Set("acme", 200); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("on a host without cgroups: %v", err)
	}
	for _, tenant := range []string{"", "A", "a/b", ".."} {
		if err := w.Set(tenant, 100); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("tenant %q: %v", tenant, err)
		}
	}
	for _, weight := range []int{-1, 0, sandbox.MaxCPUWeight + 1} {
		if err := w.Set("acme", weight); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("weight %d: %v", weight, err)
		}
	}
	for _, text := range []string{"", "{}", `{"format":2}`, `{"format":1,"tenants":{"a/b":{"cpu_weight":1}}}`,
		`{"format":1,"tenants":{"a":{"cpu_weight":0}}}`, `{"format":1,"tenants":{"a":{"cpu_weight":10001}}}`} {
		path := filepath.Join(dir, "bad.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenWeights(path, nil); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}
