package secrets

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestTheFormatOfAFile(t *testing.T) {
	s := Secret{ID: "s00112233445566778899aabb", Tenant: "acme", Name: "TOKEN", Version: 3,
		Metadata: map[string]string{"team": "a<b>", "app": "shop"}, Created: time.Unix(1000, 0), Updated: time.Unix(2000, 0)}
	b, err := sealWith(testKey(7), s, []byte("value"), bytes.Repeat([]byte{5}, 24))
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "secret-1.json")
	if *update {
		if err := os.WriteFile(golden, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(b, want) {
		t.Errorf("%v: got\n%s, want\n%s", err, b, want)
	}
	f, err := decode(want)
	if err != nil {
		t.Fatal(err)
	}
	value, err := f.open(testKey(7))
	if err != nil || string(value) != "value" {
		t.Error(string(value), err)
	}
}

// Whatever a file holds, its reader returns an error or a secret that is written as it was read.
func FuzzFile(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "secret-1.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(golden[:len(golden)-3])
	f.Add([]byte(`{"format":1,"sealed":"AAAA"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decode(b)
		if err != nil {
			return
		}
		if CheckName(got.Name) != nil || !tenantPattern.MatchString(got.Tenant) || got.Version < 1 {
			t.Fatalf("a file that no store writes is read: %+v", got.header)
		}
		value, err := got.open(testKey(7))
		if err != nil {
			return
		}
		if s := got.secret(); len(value) > MaxValue || s.Version != 3 || s.Name != "TOKEN" || string(value) != "value" {
			t.Fatalf("a forged file is read: %+v", got.header)
		}
	})
}
