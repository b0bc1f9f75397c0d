package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// A daemon on loopback TCP without a configured token makes one, which is valid while the daemon
// runs.
func TestLoopbackWantsAToken(t *testing.T) {
	d := secondDaemon(t, "--listen", "tcp://127.0.0.1:0")
	files := []string{filepath.Join(d.Run, "token"), filepath.Join(d.Run, "token.for")}
	var tokens []string
	for range 2 {
		d.start()
		var text []string
		for _, name := range files {
			st, err := os.Stat(name)
			if err != nil || st.Mode() != 0o600 {
				t.Fatalf("%s: mode %v, %v", name, st, err)
			}
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, strings.TrimSpace(string(b)))
		}
		if !strings.Contains(d.Log(), files[0]) {
			t.Errorf("the log does not say where the token is:\n%s", d.Log())
		}
		tokens = append(tokens, text[0])
		for token, code := range map[string]api.Code{"": api.CodeUnauthorized, strings.Repeat("0", 64): api.CodeUnauthorized, text[0]: ""} {
			c, err := client.New(client.Options{URL: text[1], Token: token})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.ListSandboxes(t.Context())
			if (err == nil) != (code == "") || err != nil && client.CodeOf(err) != code {
				t.Errorf("token %q: %v", token, err)
			}
			c.Close()
		}
		d.end(syscall.SIGTERM)
		for _, name := range files {
			if _, err := os.Stat(name); !os.IsNotExist(err) {
				t.Errorf("%s is left behind: %v", name, err)
			}
		}
	}
	if tokens[0] == tokens[1] {
		t.Error("two daemons have the same token")
	}
}
