package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netwire"
)

func TestWrongFlagsAreRefused(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                          "--control",
		"--control x y":                             "no flag",
		"--control x --net-private 127.0.0.0/8":     "never reachable",
		"--control x --net-private 8.8.8.0/24":      "not inside",
		"--control x --host-port 0":                 `--host-port "0": want a port`,
		"--control x --host-port 80-65536":          `--host-port "80-65536": want a port`,
		"--control x --host-address here":           "--host-address",
		"--control x --ceiling /nowhere":            "--ceiling",
		"--control x --sandbox strict":              "--sandbox \"strict\": want on",
		"--control x --upstream-proxy-file main.go": "--upstream-proxy-file main.go: want socks5://",
	} {
		o, err := parse(strings.Fields(flags))
		if err == nil {
			_, _, err = o.rules(t.Context(), nil, nil)
			if err == nil {
				_, err = o.upstreamProxy()
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flags, err, want)
		}
	}
}

func TestItEndsWhenItIsAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	calls, ended := 0, false
	endWhenAlone(ctx, 20*time.Millisecond, func() bool { calls++; return calls > 5 }, func() { ended = true })
	if !ended || calls <= 6 {
		t.Errorf("ended: %t after %d looks", ended, calls)
	}
}

// The test runs the whole program except for its loss of privileges. It binds a VM, which asks for
// a forbidden address.
func TestAVMsFlowToLoopbackIsDenied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	o, err := parse([]string{"--control", path})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rules, wait, err := o.rules(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); wait() }()
	c := serve(t, ctx, path, rules)
	ours, theirs, err := netwire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	bound, err := c.Bind(t.Context(), []control.Binding{{VM: "a", Spec: netpolicy.Spec{Default: netpolicy.Public}, Wire: theirs}})
	theirs.Close()
	if err != nil || bound[0].Error() != nil {
		t.Fatalf("bound %+v: %v", bound, err)
	}
	w, err := netwire.NewConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for id, far := range []string{l.Addr().String(), "169.254.169.254:80", "10.0.0.1:1"} {
		if err := w.Send(open(uint32(id), far)); err != nil {
			t.Fatal(err)
		}
		if m, f, err := w.Receive(true); err != nil || f != nil || m.Reason != netwire.Prohibited {
			t.Errorf("%s is answered %+v: %v", far, m, err)
		}
	}
	list, err := c.Refusals(t.Context(), "a")
	if err != nil || len(list) != 3 || !strings.Contains(list[1].Reason, "metadata") {
		t.Errorf("refusals %+v: %v", list, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func open(id uint32, far string) netwire.Message {
	return netwire.Message{Kind: netwire.Open, ID: id, Flow: netwire.Flow{
		Protocol: netwire.TCP, Guest: netip.MustParseAddrPort("192.0.0.2:40000"), Far: netip.MustParseAddrPort(far),
	}}
}

func serve(t *testing.T, ctx context.Context, path string, rules netd.Rules) *control.Client {
	t.Helper()
	l, err := control.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := netd.New(netd.Config{Rules: rules, Warn: func(err error) { t.Log(err) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- control.NewServer(l, s, func(err error) { t.Log(err) }).Serve(ctx) }()
	t.Cleanup(func() { stop(); <-done; s.Close() })
	c, err := control.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
