//go:build linux

package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/network/netproc"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/vm/hostnet"
)

// netOptions are the daemon's flags for sandboxes' networks.
type netOptions struct {
	binary      string
	ceilingText string
	ceiling     *netpolicy.Spec
	private     []string
	hostPorts   []string
	hostAddress string
	own         []string // addresses of this host on no interface
	resolvConf  string
	ca          string
	taps        []string
	sandbox     string
	upstream    upstreamOptions
}

func (o *netOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.binary, "net", "",
		"run sandbox networks with the forkd-net program `FILE` (default: beside forkd; otherwise no network)")
	f.StringVar(&o.ceilingText, "net-ceiling", "",
		"limit the network access of all sandboxes by `POLICY`: none, public (no private network, no port of "+
			"the host), any, or a policy file (default: any)")
	f.StringArrayVar(&o.private, "net-private", nil,
		"allow policies to name the private network `CIDR`; may be repeated (default: none)")
	f.StringSliceVar(&o.hostPorts, "net-host-port", nil,
		"allow policies to name `PORT` of this host, or FIRST-LAST, as host.forkd.internal:PORT; may be "+
			"repeated (default: none)")
	f.StringVar(&o.hostAddress, "net-host-address", "127.0.0.1", "connect --net-host-port to `ADDRESS` of this host")
	f.StringArrayVar(&o.own, "net-own-address", nil,
		"block `ADDRESS` or CIDR for all sandboxes, as an address of this host on no interface, such as a "+
			"public one; may be repeated (default: none)")
	f.StringVar(&o.resolvConf, "net-resolv-conf", "",
		"resolve sandboxes' names with the resolvers in `FILE` (default: /etc/resolv.conf)")
	f.StringVar(&o.ca, "net-ca", "",
		"verify hosts of header rules with the PEM certificates in `FILE` (default: the system's)")
	f.StringArrayVar(&o.taps, "net-tap", nil,
		"allow sandboxes to use the tap device `NAME`, or PREFIX*; may be repeated (default: none)")
	f.StringVar(&o.sandbox, "net-sandbox", string(seccomp.On),
		"on a denied system call of forkd-net, take `ACTION`: on, log or trap; off: no sandbox")
	_ = f.MarkHidden("net-sandbox") // for finding calls that the list lacks: users should not need to turn it off
	o.upstream.addFlags(f)
}

// complete checks the flags, and looks for forkd-net.
func (o *netOptions) complete() error {
	if err := o.check(); err != nil {
		return err
	}
	if _, err := seccomp.ParseMode(o.sandbox); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--net-sandbox %w", err)}
	}
	if o.binary != "" {
		return nil
	}
	binary, err := endpoint.Program("forkd-net")
	if errors.Is(err, os.ErrNotExist) {
		return nil // the log and doctor report it
	}
	o.binary = binary
	return err
}

// check checks the flags, and reads the files they name.
func (o *netOptions) check() error {
	for _, text := range o.private {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return exit.UsageError{Err: fmt.Errorf("--net-private %q: want a CIDR, such as 10.1.0.0/16", text)}
		}
		if _, err := netpolicy.NewFloor(netpolicy.FloorConfig{Private: []netip.Prefix{p}}); err != nil {
			return exit.UsageError{Err: fmt.Errorf("--net-private %q: %w", text, err)}
		}
	}
	for _, text := range o.hostPorts {
		if _, err := netpolicy.ParsePortRange(text); err != nil {
			return exit.UsageError{Err: fmt.Errorf("--net-host-port %w", err)}
		}
	}
	for _, text := range o.own {
		if _, err := netpolicy.ParseOwn(text); err != nil {
			return exit.UsageError{Err: fmt.Errorf("--net-own-address %w", err)}
		}
	}
	if _, err := netip.ParseAddr(o.hostAddress); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--net-host-address %q: want an address", o.hostAddress)}
	}
	if err := o.checkCA(); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--net-ca: %w", err)}
	}
	for _, p := range o.taps {
		if err := hostnet.CheckPattern(p); err != nil {
			return exit.UsageError{Err: fmt.Errorf("--net-tap %q: %w", p, err)}
		}
	}
	if err := o.upstream.complete(); err != nil {
		return err
	}
	if err := o.completeCeiling(); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--net-ceiling: %w", err)}
	}
	return nil
}

// checkCA refuses a bad file at startup, where the operator sees the error. Otherwise forkd-net
// would be restarted repeatedly.
func (o *netOptions) checkCA() error {
	if o.ca == "" {
		return nil
	}
	b, err := os.ReadFile(o.ca)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(b) {
		err = fmt.Errorf("%s has no certificate in PEM", o.ca)
	}
	return err
}

// ceilingAny is the ceiling that allows everything that the operator's other flags allow.
const ceilingAny = "any"

func (o *netOptions) completeCeiling() error {
	switch api.Net(o.ceilingText) {
	case "", ceilingAny:
		return nil
	case api.NetPublic:
		o.ceiling = &netpolicy.Spec{Default: netpolicy.Public}
		return nil
	case api.NetNone:
		o.ceiling = &netpolicy.Spec{Default: netpolicy.Deny}
		return nil
	}
	spec, err := policyFile(o.ceilingText)
	o.ceiling = &spec
	return err
}

// configure makes an engine use forkd-net, if it is installed.
func (o *netOptions) configure(c *engine.Config, log *slog.Logger) {
	c.NetCeiling, c.NetTaps = o.ceiling, hostnet.Taps(o.taps)
	if o.binary == "" {
		log.Warn("forkd-net is not beside forkd: sandboxes have no network")
		return
	}
	if text := behindTranslation(dmiDir, ownAddrs()); text != "" && len(o.own) == 0 {
		log.Warn(text)
	}
	// forkd-net gets the ceiling too. It decides flow by flow where rules cannot express the
	// ceiling.
	c.NetConnect = netproc.Connect(netproc.Config{
		Binary: o.binary, RunDir: c.RunDir, Args: o.args(), Ceiling: o.ceiling, Upstream: o.upstream.url,
		SeedFile: filepath.Join(c.StoreDir, "net-ca-seed"),
	})
}

// args returns the arguments of forkd-net.
func (o *netOptions) args() (args []string) {
	for _, cidr := range o.private {
		args = append(args, "--net-private", cidr)
	}
	for _, ports := range o.hostPorts {
		args = append(args, "--host-port", ports)
	}
	if len(o.hostPorts) > 0 {
		args = append(args, "--host-address", o.hostAddress)
	}
	for _, address := range o.own {
		args = append(args, "--own-address", address)
	}
	if o.resolvConf != "" {
		args = append(args, "--resolv-conf", o.resolvConf)
	}
	if o.ca != "" {
		args = append(args, "--net-ca", o.ca)
	}
	if o.sandbox != "" && seccomp.Mode(o.sandbox) != seccomp.On {
		args = append(args, "--sandbox", o.sandbox)
	}
	return args
}
