//go:build linux

package main

import (
	"encoding/json"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/machine/appliance"
)

// machineNetOptions are the network flags of serve that a machine's daemon can get from outside.
// Their files are on this host. The machine receives their content.
type machineNetOptions struct{ netOptions }

// nothingGiven as a value removes the stored value.
const nothingGiven = "none"

func (o *machineNetOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ceilingText, "net-ceiling", "",
		"limit the network access of all sandboxes by `POLICY`: none, public (no private network, no port of "+
			"this host), any, or a policy file (default: as before, initially any)")
	f.StringArrayVar(&o.private, "net-private", nil,
		"allow policies to name the private network `CIDR`; none: remove all; may be repeated (default: as "+
			"before, initially none)")
	f.StringSliceVar(&o.hostPorts, "net-host-port", nil,
		"allow policies to name `PORT` of this host, or FIRST-LAST, as host.forkd.internal:PORT; none: "+
			"remove all; may be repeated (default: as before, initially 1024-65535)")
	f.StringArrayVar(&o.own, "net-own-address", nil,
		"block `ADDRESS` or CIDR for all sandboxes, as an address of this host; none: remove all; may be "+
			"repeated (default: as before, initially none)")
	f.StringVar(&o.upstream.url, "net-upstream-proxy", "",
		"route sandboxes' TCP through the proxy `URL`, socks5://HOST[:PORT] or http://HOST:PORT; none: remove it "+
			"(default: as before, initially none)")
	f.StringVar(&o.upstream.file, "net-upstream-proxy-file", "",
		"read a proxy URL with a password from `FILE`, such as socks5://USER:PASSWORD@HOST[:PORT]")
}

// change returns the changes of the flags on the command line.
func (o *machineNetOptions) change(typed *pflag.FlagSet) (c appliance.NetworkChange, err error) {
	given := o.netOptions // values to check
	given.hostAddress = "127.0.0.1"
	if isClear(given.private) {
		given.private = []string{}
	}
	if isClear(given.hostPorts) {
		given.hostPorts = []string{}
	}
	if isClear(given.own) {
		given.own = []string{}
	}
	if given.upstream.url == nothingGiven {
		given.upstream.url = ""
	}
	if err := given.check(); err != nil {
		return c, err
	}
	if typed.Changed("net-private") {
		c.Private = &given.private
	}
	if typed.Changed("net-host-port") {
		c.HostPorts = &given.hostPorts
	}
	if typed.Changed("net-own-address") {
		c.Own = &given.own
	}
	if typed.Changed("net-upstream-proxy") || typed.Changed("net-upstream-proxy-file") {
		c.Upstream = &given.upstream.url
	}
	if typed.Changed("net-ceiling") {
		c.Ceiling, err = given.ceilingForMachine()
	}
	return c, err
}

func isClear(list []string) bool { return len(list) == 1 && list[0] == nothingGiven }

// ceilingForMachine returns a checked ceiling: a word, or a file's content.
func (o *netOptions) ceilingForMachine() (*string, error) {
	switch api.Net(o.ceilingText) {
	case api.NetPublic, api.NetNone:
		return &o.ceilingText, nil
	case "", ceilingAny:
		return new(string), nil
	}
	b, err := json.Marshal(o.ceiling) // JSON is YAML
	text := string(b)
	return &text, err
}
