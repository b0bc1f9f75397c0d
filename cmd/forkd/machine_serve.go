//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/forkd/forkd/cmd/internal/exit"
)

// serveConfig reads a file with flags of forkd serve for a machine's daemon. Each line has one
// flag, as on a command line. Empty lines and lines with # are ignored.
func serveConfig(a *app, path string) (*[]string, error) {
	flags := []string{}
	if path == nothingGiven {
		return &flags, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, exit.UsageError{Err: fmt.Errorf("--serve-config: %w", err)}
	}
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		given, err := serveFlag(a, line)
		if err != nil {
			return nil, exit.UsageError{Err: fmt.Errorf("--serve-config: %s:%d: %w", path, i+1, err)}
		}
		flags = append(flags, given)
	}
	return &flags, nil
}

// ownedByMachine returns the flags of serve that the machine sets itself, or for which it has its
// own flags. The files named by the last of them are on this host, where the machine cannot see
// them.
func ownedByMachine() []string {
	return []string{"listen", "token-file", "data", "run", "vmm", "kvm", "spawn", "net", "idle-exit", "jail",
		"net-ceiling", "net-private", "net-host-port", "net-host-address", "net-own-address",
		"net-upstream-proxy", "net-upstream-proxy-file",
		"tls-cert", "tls-key", "tls-client-ca", "net-resolv-conf", "net-ca"}
}

// serveFlag returns a line as one argument, --name=value, after a check with the flags of forkd
// serve.
func serveFlag(a *app, line string) (string, error) {
	name, value, given := strings.Cut(line, "=")
	if at := strings.IndexAny(line, " \t"); at >= 0 && (!given || at < len(name)) {
		name, value, given = line[:at], strings.TrimSpace(line[at:]), true
	}
	long, ok := strings.CutPrefix(name, "--")
	if !ok {
		return "", fmt.Errorf("%q: want --FLAG VALUE", line)
	}
	if slices.Contains(ownedByMachine(), long) {
		return "", fmt.Errorf("%s: the machine sets it itself, or `forkd machine start` has a flag for it", name)
	}
	set := newServeCommand(a).Flags()
	f := set.Lookup(long)
	switch {
	case f == nil:
		return "", fmt.Errorf("forkd serve has no flag %s", name)
	case !given && f.NoOptDefVal == "":
		return "", fmt.Errorf("%s needs a value", name)
	case !given:
		value = f.NoOptDefVal
	}
	if err := set.Set(long, value); err != nil {
		return "", err
	}
	return name + "=" + value, nil
}
