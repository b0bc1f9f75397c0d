package listen_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/listen"
)

const token = "0123456789abcdef0123456789abcdef"

func TestWhereTheDaemonMayListen(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, address, token, problem string
	}{
		{"loopback without a token", "tcp://127.0.0.1:0", "", "refused without a token"},
		{"loopback by name without a token", "tcp://localhost:0", "", "refused without a token"},
		{"everywhere without a token", "tcp://0.0.0.0:0", "", "refused without a token"},
		{"loopback", "tcp://127.0.0.1:0", token, ""},
		{"everywhere with a token", "tcp://0.0.0.0:0", token, "plain HTTP"},
		{"by a name with a token", "tcp://example.org:0", token, "plain HTTP"},
		{"everywhere by no name", "tcp://:0", token, "plain HTTP"},
		{"loopback of IPv6", "tcp://[::1]:0", token, ""},
		{"socket", "unix://" + dir + "/sub/s", "", ""},
		{"socket with a host", "unix://host/s", "", "want"},
		{"other scheme", "http://127.0.0.1:0", "", "want"},
		{"no scheme", "127.0.0.1:0", "", "want"},
		{"no port", "tcp://127.0.0.1", "", "port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := listen.Listen(t.Context(), c.address, c.token)
			if err == nil {
				l.Close()
			}
			if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want %q", err, c.problem)
			}
		})
	}
}

func TestSocketIsPrivateAndNotStolen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	// A killed daemon leaves a socket without a server.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := listen.Listen(t.Context(), "unix://"+path, "")
	if err != nil {
		t.Fatalf("take over a dead socket: %v", err)
	}
	defer l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %v, %v", st.Mode(), err)
	}
	if _, err := listen.Listen(t.Context(), "unix://"+path, ""); err == nil {
		t.Error("a socket in use was taken over")
	}
}
