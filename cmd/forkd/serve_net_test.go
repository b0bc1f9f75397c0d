//go:build linux

package main

import (
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

func netOptionsOf(t *testing.T, args ...string) (netOptions, error) {
	t.Helper()
	var o netOptions
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.addFlags(f)
	if err := f.Parse(append([]string{"--net", "/bin/forkd-net"}, args...)); err != nil {
		t.Fatal(err)
	}
	return o, o.complete()
}

func TestTheFlagsOfServeAreForkdNets(t *testing.T) {
	o, err := netOptionsOf(t, "--net-private", "10.1.0.0/16", "--net-host-port", "80,8080",
		"--net-host-port", "1024-65535", "--net-own-address", "93.184.216.34", "--net-own-address", "8.8.4.0/24",
		"--net-ceiling", "none", "--net-resolv-conf", "/etc/sandboxes.conf")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--net-private", "10.1.0.0/16", "--host-port", "80", "--host-port", "8080", "--host-port", "1024-65535",
		"--host-address", "127.0.0.1", "--own-address", "93.184.216.34", "--own-address", "8.8.4.0/24", "--resolv-conf", "/etc/sandboxes.conf"}
	if got := o.args(); !slices.Equal(got, want) || o.ceiling == nil || o.ceiling.Default != netpolicy.Deny {
		t.Errorf("got %q, ceiling %+v", got, o.ceiling)
	}
}

// TestPublicIsACeiling: public limits the other flags, and differs from no ceiling.
func TestPublicIsACeiling(t *testing.T) {
	for args, want := range map[string]*netpolicy.Spec{
		"": nil, "--net-ceiling any": nil,
		"--net-ceiling public --net-host-port 8080": {Default: netpolicy.Public},
		"--net-ceiling none":                        {Default: netpolicy.Deny},
	} {
		o, err := netOptionsOf(t, strings.Fields(args)...)
		if err != nil || !reflect.DeepEqual(o.ceiling, want) {
			t.Errorf("%q: got %+v, %v", args, o.ceiling, err)
		}
	}
}

func TestTheProxyOfServe(t *testing.T) {
	o, err := netOptionsOf(t, "--net-upstream-proxy", "socks5://proxy.example")
	if err != nil || o.upstream.url != "socks5://proxy.example" {
		t.Errorf("got %q, %v", o.upstream.url, err)
	}
	file := filepath.Join(t.TempDir(), "proxy")
	if err := os.WriteFile(file, []byte("socks5://me:geheim@proxy.example:1081\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err = netOptionsOf(t, "--net-upstream-proxy-file", file)
	if err != nil || o.upstream.url != "socks5://me:geheim@proxy.example:1081" {
		t.Errorf("got %q, %v", o.upstream.url, err)
	}
	if strings.Contains(strings.Join(o.args(), " "), "geheim") {
		t.Errorf("forkd-net's arguments are %q", o.args())
	}
}

func TestTheCertificatesOfServeAreForkdNets(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := netOptionsOf(t, "--net-ca", file)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.args(); !slices.Equal(got, []string{"--net-ca", file}) {
		t.Errorf("got %q", got)
	}
}

func TestTapsOfServe(t *testing.T) {
	o, err := netOptionsOf(t, "--net-tap", "tap0", "--net-tap", "cni-*")
	if err != nil {
		t.Fatal(err)
	}
	var c engine.Config
	o.configure(&c, slog.New(slog.DiscardHandler))
	if !c.NetTaps.Allows("tap0") || !c.NetTaps.Allows("cni-1") || c.NetTaps.Allows("eth0") {
		t.Errorf("allowed: %v", c.NetTaps)
	}
}

func TestWrongNetworkFlagsOfServe(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("default: deny\nallow: [\"x:99999\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, args, want string }{
		{"no network", "--net-private here", `--net-private "here": want a CIDR`},
		{"one that is never reachable", "--net-private 127.0.0.0/8", `--net-private "127.0.0.0/8": `},
		{"no port", "--net-host-port 0", `--net-host-port "0": want a port from 1 to 65535, or a range such as 1024-65535`},
		{"a range from the end", "--net-host-port 90-80", `--net-host-port "90-80": want`},
		{"a word", "--net-host-port http", `--net-host-port "http": want`},
		{"no address", "--net-host-address here", `--net-host-address "here"`},
		{"no policy", "--net-ceiling nowhere", `--net-ceiling: "nowhere": want none, public, or an existing policy file`},
		{"no file of certificates", "--net-ca nowhere.pem", "--net-ca: open nowhere.pem: "},
		{"a file without certificates", "--net-ca " + bad, "--net-ca: " + bad + " has no certificate in PEM"},
		{"all taps", "--net-tap *", `--net-tap "*": want a prefix`},
		{"no tap", "--net-tap fd:3", `--net-tap "fd:3": want the name`},
		{"two proxies", "--net-upstream-proxy socks5://a --net-upstream-proxy-file b", "want one of them"},
		{"no proxy", "--net-upstream-proxy ftp://a", "--net-upstream-proxy: want socks5://"},
		{"a password for all to see", "--net-upstream-proxy socks5://me:x@a", "use --net-upstream-proxy-file"},
		{"no proxy in the file", "--net-upstream-proxy-file " + bad, "--net-upstream-proxy-file " + bad + ": want socks5://"},
		{"no file with a proxy", "--net-upstream-proxy-file /nowhere", "--net-upstream-proxy-file: "},
		{"a bad rule in the ceiling", "--net-ceiling " + bad, bad + ":2: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := netOptionsOf(t, strings.Fields(tc.args)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
