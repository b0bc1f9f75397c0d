package vmstate

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

func sample() []byte {
	var w Writer
	w.Add("shape", 1, []byte("0123"))
	w.Add("vcpu.0", 2, bytes.Repeat([]byte{0xab}, 40))
	w.Add("empty", 1, nil)
	return w.Bytes()
}

func TestRoundTrip(t *testing.T) {
	s, err := Decode(sample())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Section("shape", 1); err != nil || string(b) != "0123" {
		t.Fatalf("shape: %q, %v", b, err)
	}
	if _, err := s.Section("vcpu.0", 1); !errors.Is(err, ErrMissing) {
		t.Fatalf("another version: %v, want ErrMissing", err)
	}
	if _, err := s.Section("nothing", 1); !errors.Is(err, ErrMissing) {
		t.Fatalf("no such section: %v, want ErrMissing", err)
	}
}

func TestEveryFlippedByteIsFound(t *testing.T) {
	good := sample()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		s, err := Decode(bad)
		if err == nil {
			// The reserved word of a head is outside the checksum and unused.
			if _, err := s.Section("shape", 1); err != nil {
				t.Errorf("byte %d: decoded, but %v", i, err)
			}
		}
		if i < headerSize && err == nil {
			t.Errorf("byte %d of the header was flipped unnoticed", i)
		}
	}
	for n := range good {
		if _, err := Decode(good[:n]); err == nil {
			t.Errorf("cut after %d bytes, and decoded", n)
		}
	}
}

func TestGoldenFormat2(t *testing.T) {
	const path = "testdata/format-2.bin"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, sample(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sample(), want) {
		t.Fatal("the container's format changed: give it a new version")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sample())
	f.Add(sample()[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := Decode(b); err == nil {
			s.Section("shape", 1)
		}
	})
}
