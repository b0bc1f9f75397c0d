//go:build linux

package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
)

func nodeKey(t *testing.T, args ...string) (sandbox.NodeKey, error) {
	t.Helper()
	var o nodeOptions
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.addFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	var c engine.Config
	o.configure(&c)
	return c.NodeKey, o.complete()
}

func TestTheNodeOfADaemon(t *testing.T) {
	const uid = "9f3c1c0e-6d0a-4a52-9d38-0a8f6b1c2d3e"
	for name, c := range map[string]struct {
		args []string
		want sandbox.NodeKey
	}{
		"no node":      {nil, ""},
		"a name":       {[]string{"--node-name", "node-a.example"}, sandbox.NodeKeyOf("node-a.example")},
		"a UID":        {[]string{"--node-uid", uid}, sandbox.NodeKeyOf(uid)},
		"name and UID": {[]string{"--node-name", "node-a", "--node-uid", uid}, sandbox.NodeKeyOf(uid)},
	} {
		if got, err := nodeKey(t, c.args...); got != c.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	for _, arg := range []string{"--node-name=Node", "--node-name=-a", "--node-name=a\n", "--node-name=" + strings.Repeat("a", 254),
		"--node-uid=a/b", "--node-uid=" + strings.Repeat("a", 65)} {
		_, err := nodeKey(t, arg)
		flag, _, _ := strings.Cut(arg, "=")
		var usage exit.UsageError
		if !errors.As(err, &usage) || !strings.HasPrefix(err.Error(), flag+" is ") {
			t.Errorf("%q: %v", arg, err)
		}
	}
}

// The facts of this host are in GET /v1/node.
func TestTheNodeOfTheDaemon(t *testing.T) {
	o := nodeOptions{name: "node-a", uid: "u"}
	n := o.facts(engine.Config{}, slog.New(slog.DiscardHandler))
	if n.Name != "node-a" || n.UID != "u" || n.Key != sandbox.NodeKeyOf("u") || n.ChildMemory != 8<<20 ||
		n.Kernel == "" || n.CPU.Vendor == "" || len(n.CPU.Features) < 10 {
		t.Errorf("%+v", n)
	}
}
