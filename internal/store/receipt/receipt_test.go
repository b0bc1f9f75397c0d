package receipt

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// full returns a receipt with every field set.
func full() Receipt {
	return Receipt{
		Format: Format, ID: "r0000000000000f0001", Op: Rollback, Sandbox: "sb-5f3a9c01-0002", Snapshot: "mid",
		At: time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC), TookUS: 412_000, Error: "it did not", Recovered: true,
		Parent: &Source{Tag: "mid", ContentHash: "sha256:aa", Layers: []Layer{
			{ID: "memory", Kind: "memory", Bytes: 6 << 20, Digest: "sha256:bb"}, {ID: "disk1", Kind: "disk", Bytes: 4 << 30},
		}},
		Made: &Source{Tag: "new"}, Image: &Image{Name: "python-numpy", Digest: "sha256:cc"}, Before: "pyagent",
		Capture: &Capture{Mode: "live", Mechanism: "wp-async", PauseUS: 1500, Rounds: 2, Bytes: 3 << 20, PausedBytes: 64 << 10, PauseSteps: []Step{{Name: "stop", TookUS: 700}, {Name: "copy", TookUS: 800}}},
		VM:      &VM{Pooled: true, Prepared: true, MapUS: 210, StateUS: 340, PopulatedPages: 3170},
		Identity: &Identity{
			Index: 2, Parent: "pyagent", Hostname: "sb-5f3a9c01-0002", MachineID: strings.Repeat("0f", 16),
			GenerationID: strings.Repeat("1e", 16), EntropyBytes: 64, Way: "port",
		},
		Guest: &Guest{
			KernelReseeded: true, RandomDigest: strings.Repeat("2d", 32), BootID: "0b0e8d7e-0000-4000-8000-000000000000",
			ClockStepUS: 3_600_000_000, TookUS: 88_000,
			Steps:        []GuestStep{{Name: "entropy", Done: true, TookUS: 90}, {Name: "network", Error: "no link", TookUS: 3}},
			Interpreters: []Interpreter{{Language: "python", Reseeded: []string{"random", "numpy.random", "openssl"}, TookUS: 700, Error: "x"}},
			Hooks:        []Hook{{Name: "10-keys", ExitCode: 1, Error: "exit status 1", TookUS: 4000}},
		},
		Steps: []Step{{Name: "restore", TookUS: 1900, Bytes: 1}},
	}
}

func TestGoldenFile(t *testing.T) {
	path := filepath.Join("testdata", "receipt-v1.json")
	b, err := Encode(full())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("the format has changed:\n%s", b)
	}
	got, err := Decode(want)
	if err != nil || !reflect.DeepEqual(got, full()) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestWhatIsNoReceipt(t *testing.T) {
	whole, err := Encode(full())
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) []byte { return bytes.Replace(whole, []byte(from), []byte(to), 1) }
	for name, b := range map[string][]byte{
		"nothing":        nil,
		"no JSON":        []byte("receipt"),
		"cut short":      whole[:len(whole)/2],
		"another format": change(`"format": 1`, `"format": 2`),
		"bad id":         change(`"id": "r0`, `"id": "q0`),
		"bad operation":  change(`"op": "rollback"`, `"op": "sell"`),
		"bad subject":    change(`"sandbox": "sb-`, `"sandbox": "../sb-`),
		"no subject":     change(`"sandbox": "sb-5f3a9c01-0002"`, `"sandbox": ""`),
		"long text":      change(`it did not`, strings.Repeat("x", maxText+1)),
		"long list":      change(`"steps": [`, `"steps": [`+strings.Repeat(`{"name":"x"},`, maxList)),
		"too large":      append(bytes.Clone(whole), bytes.Repeat([]byte(" "), MaxBytes)...),
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := Decode(b); !errors.Is(err, ErrFormat) {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

// Text from a guest cannot prevent a receipt from being stored.
func TestTextsAndListsAreCut(t *testing.T) {
	r := full()
	long := strings.Repeat("ä", maxText)
	r.Error, r.Guest.Hooks[0].Error, r.Guest.Interpreters[0].Reseeded[0] = long, long, long
	for range maxList {
		r.Guest.Steps = append(r.Guest.Steps, GuestStep{Name: "\xff\x00"})
		r.Guest.Interpreters[0].Reseeded = append(r.Guest.Interpreters[0].Reseeded, "x")
	}
	b, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil || len(got.Guest.Steps) != maxList || !strings.HasSuffix(got.Error, "ä…") || got.Guest.Steps[maxList-1].Name != `\xff\x00` {
		t.Errorf("got %+v, %v", got.Guest.Steps[:3], err)
	}
	if len(r.Guest.Steps) != maxList+2 || r.Error != long {
		t.Error("the caller's own was cut")
	}
}

func FuzzDecode(f *testing.F) {
	b, err := Encode(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1,"id":"r000000000000000000","op":"fork","sandbox":"a","guest":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Encode(r)
		if err != nil {
			if len(b) < MaxBytes/8 { // with indentation it may be larger
				t.Fatalf("what was decoded cannot be encoded: %v", err)
			}
			return
		}
		if _, err := Decode(again); err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v", err)
		}
	})
}
