//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/internal/machine/appliance"
)

func machineNetOf(t *testing.T, args ...string) (appliance.NetworkChange, error) {
	t.Helper()
	var o machineNetOptions
	f := pflag.NewFlagSet("start", pflag.ContinueOnError)
	o.addFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o.change(f)
}

func TestMachineStartChangesWhatItIsTold(t *testing.T) {
	c, err := machineNetOf(t)
	if err != nil || c != (appliance.NetworkChange{}) {
		t.Errorf("without flags: %+v, %v", c, err)
	}
	dir := t.TempDir()
	policy, proxy := filepath.Join(dir, "ceiling.yaml"), filepath.Join(dir, "proxy")
	for path, text := range map[string]string{
		policy: "default: deny\nallow:\n  - example.org:443 # ours\n", proxy: "socks5://me:geheim@proxy.example\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err = machineNetOf(t, "--net-ceiling", policy, "--net-private", "10.1.0.0/16", "--net-private", "10.2.0.0/16",
		"--net-host-port", "80,8000-8999", "--net-upstream-proxy-file", proxy)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(*c.Ceiling, `"example.org:443"`) || *c.Upstream != "socks5://me:geheim@proxy.example" ||
		!slices.Equal(*c.Private, []string{"10.1.0.0/16", "10.2.0.0/16"}) || !slices.Equal(*c.HostPorts, []string{"80", "8000-8999"}) {
		t.Errorf("got %s, %s, %v, %v", *c.Ceiling, *c.Upstream, *c.Private, *c.HostPorts)
	}
	c, err = machineNetOf(t, "--net-ceiling", "public", "--net-private", "none", "--net-host-port", "none", "--net-upstream-proxy", "none")
	if err != nil || *c.Ceiling != "public" || *c.Upstream != "" || len(*c.Private) != 0 || len(*c.HostPorts) != 0 {
		t.Errorf("cleared: %+v, %v", c, err)
	}
	if c, err = machineNetOf(t, "--net-own-address", "93.184.216.34"); err != nil || !slices.Equal(*c.Own, []string{"93.184.216.34"}) {
		t.Errorf("an address of the host: %+v, %v", c, err)
	}
	if c, err = machineNetOf(t, "--net-own-address", "none"); err != nil || c.Own == nil || len(*c.Own) != 0 {
		t.Errorf("none: %+v, %v", c, err)
	}
	if c, err = machineNetOf(t, "--net-ceiling", "any"); err != nil || c.Ceiling == nil || *c.Ceiling != "" {
		t.Errorf("a ceiling taken away: %+v, %v", c, err)
	}
}

func TestWrongNetworkFlagsOfMachineStart(t *testing.T) {
	for _, tc := range []struct{ name, args, want string }{
		{"no network", "--net-private here", "--net-private"},
		{"none and more", "--net-private none --net-private 10.1.0.0/16", `--net-private "none"`},
		{"no port", "--net-host-port 0", "--net-host-port"},
		{"no policy", "--net-ceiling nowhere", "--net-ceiling"},
		{"a password for all to see", "--net-upstream-proxy socks5://me:x@a", "use --net-upstream-proxy-file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := machineNetOf(t, strings.Fields(tc.args)...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
