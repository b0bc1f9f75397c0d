//go:build linux

package endpoint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func writeTestToken(t *testing.T) (run, token string) {
	t.Helper()
	run = t.TempDir()
	token, err := NewToken()
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(token) {
		t.Fatalf("token %q, %v", token, err)
	}
	if _, err := WriteToken(run, token, []string{"tcp://127.0.0.1:8889", "tcp://0.0.0.0:9000", "tcp://[::1]:9001"}); err != nil {
		t.Fatal(err)
	}
	return run, token
}

func TestTheTokenIsForItsDaemonOnly(t *testing.T) {
	run, token := writeTestToken(t)
	for url, is := range map[string]bool{
		"http://127.0.0.1:8889": true, "tcp://127.0.0.1:8889": true, "http://localhost:8889": true, "http://127.0.0.1:9000": true, "tcp://[::1]:9001": true,
		"http://127.0.0.1:8890": false, "http://127.0.0.2:8889": false, "http://example.org:8889": false, "http://10.0.0.1:9000": false,
		"https://127.0.0.1:8889": false, "unix:///run/forkd/forkd.sock": false, "http://127.0.0.1": false, "http://[::1]:8889": false, "://": false, "": false,
	} {
		if got := tokenFor(run, url); (got == token) != is || !is && got != "" {
			t.Errorf("%q: got %q", url, got)
		}
	}
	if e, err := Resolve(t.Context(), Paths{Run: run}, Options{URL: "tcp://127.0.0.1:8889"}); err != nil || e.Token != token {
		t.Errorf("got %+v, %v", e, err)
	}
	if e, err := Resolve(t.Context(), Paths{Run: run}, Options{URL: "tcp://127.0.0.1:8889", Token: "given"}); err != nil || e.Token != "given" {
		t.Errorf("with a token that was given: %+v, %v", e, err)
	}
}

func TestTheTokensFileIsPrivateAndNew(t *testing.T) {
	run, first := writeTestToken(t)
	if st, err := os.Lstat(TokenFile(run)); err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	// Files of a killed daemon, or planted files, are replaced and not followed.
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(TokenFile(run)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, TokenFile(run)); err != nil {
		t.Fatal(err)
	}
	remove, err := WriteToken(run, strings.Repeat("ab", 32), []string{"tcp://127.0.0.1:8889"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "kept" {
		t.Errorf("the victim has %q, %v", b, err)
	}
	if got := tokenFor(run, "tcp://127.0.0.1:8889"); got == first || got != strings.Repeat("ab", 32) {
		t.Errorf("got %q", got)
	}
	remove()
	if got := tokenFor(run, "tcp://127.0.0.1:8889"); got != "" {
		t.Errorf("after the daemon's end: %q", got)
	}
}

func TestFilesThatAnotherCouldHaveWrittenAreNotRead(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"readable by others": func(path string) error { return os.Chmod(path, 0o644) },
		"of another user":    func(path string) error { return os.Chown(path, 54321, -1) },
		"a link": func(path string) error {
			to := path + ".else"
			if err := os.Rename(path, to); err != nil {
				return err
			}
			return os.Symlink(to, path)
		},
		"no token": func(path string) error { return os.WriteFile(path, []byte("-----BEGIN PRIVATE KEY-----"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			run, _ := writeTestToken(t)
			if err := damage(TokenFile(run)); err != nil {
				if name == "of another user" && os.Geteuid() != 0 {
					return // only root can give files away
				}
				t.Fatal(err)
			}
			if got := tokenFor(run, "tcp://127.0.0.1:8889"); got != "" {
				t.Errorf("got %q", got)
			}
		})
	}
}
