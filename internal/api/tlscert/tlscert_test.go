package tlscert

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func made(t *testing.T) (cert, key string) {
	t.Helper()
	cert, key, err := Made(filepath.Join(t.TempDir(), "tls"))
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func opened(t *testing.T, cert, key string) *Files {
	t.Helper()
	f, err := Open(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	f.now = func() time.Time { now = now.Add(lookEvery); return now }
	return f
}

// current returns the fingerprint a new client sees.
func current(t *testing.T, f *Files) string {
	t.Helper()
	c, err := f.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return Fingerprint(c.Certificate[0])
}

func TestACertificateIsMadeOnce(t *testing.T) {
	cert, key := made(t)
	first := opened(t, cert, key).Fingerprint()
	if again, _, err := Made(filepath.Dir(cert)); err != nil || again != cert || opened(t, cert, key).Fingerprint() != first {
		t.Errorf("the second start: %s, %v", again, err)
	}
	if st, err := os.Stat(key); err != nil || st.Mode() != 0o600 {
		t.Errorf("the key's mode is %v, %v", st.Mode(), err)
	}
}

func TestFilesThatChangeAreReadAnew(t *testing.T) {
	cert, key := made(t)
	f := opened(t, cert, key)
	first := current(t, f)
	otherCert, otherKey := made(t)
	replace := func(from, to string) {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, append(b, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Minute)
		if err := os.Chtimes(to, later, later); err != nil {
			t.Fatal(err)
		}
	}
	replace(otherCert, cert)
	if got := current(t, f); got != first {
		t.Errorf("with half of the files: %s", got)
	}
	replace(otherKey, key)
	if got, want := current(t, f), opened(t, otherCert, otherKey).Fingerprint(); got != want || f.Fingerprint() != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if got := current(t, f); got == first || got == "" {
		t.Errorf("with a file gone: %s", got)
	}
}

func TestFilesThatCannotBe(t *testing.T) {
	cert, key := made(t)
	other, _ := made(t)
	for name, pair := range map[string][2]string{"missing": {cert + "x", key}, "of two": {other, key}, "the wrong way round": {key, cert}} {
		if _, err := Open(pair[0], pair[1], slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s: they were read", name)
		}
	}
	f := opened(t, cert, key)
	if c, err := f.Config(cert); err != nil || c.ClientCAs == nil {
		t.Errorf("clients' certificates: %v", err)
	}
	for _, ca := range []string{key, cert + "x"} {
		if _, err := f.Config(ca); err == nil {
			t.Errorf("%s has certificates", ca)
		}
	}
}
