//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAServeConfigIsCheckedOnThisHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "serve.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# ours\n\n--pool 2\n  --log-level=debug\n--e2b-private-ports\n--e2b=false\n--audit-log none\n--cors-origin https://a.example\n")
	want := []string{"--pool=2", "--log-level=debug", "--e2b-private-ports=true", "--e2b=false", "--audit-log=none",
		"--cors-origin=https://a.example"}
	if got, err := serveConfig(&app{}, path); err != nil || !slices.Equal(*got, want) {
		t.Errorf("got %q, %v", *got, err)
	}
	for _, line := range []string{"--nope 1", "pool 2", "--pool", "--pool two", "--listen tcp://0.0.0.0:1", "--data /x",
		"--net-ceiling none", "--tls-cert /etc/cert", "-p 1"} {
		write(line)
		if got, err := serveConfig(&app{}, path); err == nil {
			t.Errorf("%s: it will do, as %q", line, *got)
		}
	}
	if got, err := serveConfig(&app{}, "none"); err != nil || len(*got) != 0 {
		t.Errorf("none: %v, %v", got, err)
	}
	// serve knows each of these flags, to detect a renamed flag.
	for _, name := range ownedByMachine() {
		if newServeCommand(&app{}).Flags().Lookup(name) == nil {
			t.Errorf("forkd serve has no flag --%s", name)
		}
	}
}
