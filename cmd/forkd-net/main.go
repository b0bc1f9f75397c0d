// Command forkd-net is the network of a host's VMs. It applies policies to their flows, resolves
// names, dials, and hands connected sockets to the VMMs. The daemon starts it. It outlives the
// daemon, and ends when it has no more users. It runs without privileges, and drops its other
// unused rights before it takes a VM's wire (sandbox.go).
package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/net/netd"
	"github.com/forkd/forkd/internal/net/netd/control"
	"github.com/forkd/forkd/internal/net/netd/ruled"
	"github.com/forkd/forkd/internal/net/netdns"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/net/upstream"
	"github.com/forkd/forkd/internal/sys/durable"
)

func main() {
	err := run(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "forkd-net:", err)
		os.Exit(1)
	}
}

// warn prints a message for the operator. The daemon keeps the output.
func warn(err error) { fmt.Fprintln(os.Stderr, "forkd-net:", err) }

func run(args []string) error {
	if len(args) == 3 && args[0] == readerArg {
		return read(args[1], args[2], os.Stdin, os.Stdout)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := raiseDescriptors(); err != nil {
		warn(err)
	}
	listener, err := control.Listen(o.control)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := dropPrivileges(); err != nil {
		return err
	}
	resolvers, err := startReader(o.resolvConf, o.sandbox, warn)
	if err != nil {
		return err
	}
	defer resolvers.close()
	var s *netd.Server // it is set before there are guests
	rules, wait, err := o.rules(ctx, resolvers.Servers,
		func(vm string, l control.Line) { s.NameDenied(vm, l) })
	if err != nil {
		return err
	}
	defer func() { stop(); wait() }()
	roots, err := o.roots()
	if err != nil {
		return err
	}
	seed, err := o.seed()
	if err != nil {
		return err
	}
	upstream, err := o.upstreamProxy()
	if err != nil {
		return err
	}
	s, err = netd.New(netd.Config{
		Rules: rules, AuditPath: o.log, Intercept: netproxy.NewInterceptor(roots, seed), Upstream: upstream,
		Warn: warn, OnShutdown: stop,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	lost, err := o.confine(o.files())
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "forkd-net: sandbox: no capabilities,", lost)
	c := control.NewServer(listener, s, warn)
	go endWhenAlone(ctx, o.alone, func() bool { return c.Conns() == 0 && s.VMs() == 0 }, stop)
	return c.Serve(ctx)
}

// options holds the flags.
type options struct {
	control, log, resolvConf string
	private, own             []string
	hostAddress              string
	hostPorts                []string
	ceiling, ca, caSeed      string
	upstream                 string
	sandbox                  string
	alone                    time.Duration
}

func parse(args []string) (o options, err error) {
	f := pflag.NewFlagSet("forkd-net", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {
		fmt.Println("forkd-net is the network of a host's VMs. The daemon starts it; there is nothing to do by hand.")
		fmt.Printf("\nUsage:\n  forkd-net --control SOCKET [flags]\n\nFlags:\n%s", f.FlagUsages())
	}
	f.StringVar(&o.control, "control", "", "listen for the daemon at this SEQPACKET `socket`")
	f.StringVar(&o.log, "log", "", "write the audit, a JSON line per connection, to this `file`; over 16 MiB it becomes FILE.1")
	f.StringArrayVar(&o.private, "net-private", nil, "open a private `CIDR` to policies; may be repeated")
	f.StringArrayVar(&o.own, "own-address", nil, "close this `address` or CIDR, by which the host is reached; may be repeated")
	f.StringVar(&o.hostAddress, "host-address", "127.0.0.1", "dial this `address` for host.forkd.internal")
	f.StringSliceVar(&o.hostPorts, "host-port", nil,
		"open a `port` of the host, or FIRST-LAST, to policies, as host.forkd.internal; may be repeated")
	f.StringVar(&o.ceiling, "ceiling", "", "no policy is above the one in this YAML `file`")
	f.StringVar(&o.resolvConf, "resolv-conf", "/etc/resolv.conf", "ask the resolvers of this `file`")
	f.StringVar(&o.upstream, "upstream-proxy-file", "",
		"dial TCP through the SOCKS5 proxy whose URL is in this `file`, and refuse UDP")
	f.StringVar(&o.ca, "net-ca", "", "where headers are injected, verify hosts by the certificates in this PEM `file`, not the system's")
	f.StringVar(&o.caSeed, "ca-seed-file", "",
		"derive the keys of guests' certificates from the 32 bytes in this `file` (default: new keys at each start)")
	f.DurationVar(&o.alone, "alone", time.Minute, "end when there is no daemon and no VM for this `time`")
	f.StringVar(&o.sandbox, "sandbox", string(seccomp.On),
		"at a system call that it has no need of: on (it is killed), log, trap; off: it gives up its capabilities only")
	_ = f.MarkHidden("sandbox") // for finding missing calls in the list; operators should not need it
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if _, err := seccomp.ParseMode(o.sandbox); err != nil {
		return o, fmt.Errorf("--sandbox %w", err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; see forkd-net --help", f.Arg(0))
	}
	if o.control == "" {
		return o, errors.New("--control is needed; see forkd-net --help")
	}
	return o, nil
}

// rules combines the floor, the resolver and the ceiling.
func (o *options) rules(
	ctx context.Context, servers func() []netip.AddrPort, denied func(vm string, l control.Line),
) (rules *ruled.Rules, wait func(), err error) {
	floor, err := o.floor()
	if err != nil {
		return nil, nil, err
	}
	ceiling, err := o.readCeiling(floor)
	if err != nil {
		return nil, nil, err
	}
	if wait, err = ruled.FollowHost(ctx, floor, warn); err != nil {
		return nil, nil, err
	}
	route := &netdns.IPv6Route{}
	resolver := netdns.New(netdns.Config{
		Upstream: &netdns.Client{Servers: servers}, HasIPv6: route.Has,
	})
	return ruled.New(ruled.Config{Floor: floor, Ceiling: ceiling, Resolver: resolver, Denied: denied}), wait, nil
}

// roots returns nil for the system's certificates.
func (o *options) roots() (*x509.CertPool, error) {
	if o.ca == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.ca) // #nosec G703 -- the operator names the file by a flag
	if err != nil {
		return nil, fmt.Errorf("--net-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("--net-ca: %s has no certificate", o.ca)
	}
	return pool, nil
}

// seed returns nil for new keys.
func (o *options) seed() ([]byte, error) {
	if o.caSeed == "" {
		return nil, nil
	}
	b, err := durable.ReadFile(o.caSeed, netproxy.SeedBytes+1)
	if err != nil {
		return nil, fmt.Errorf("--ca-seed-file: %w", err)
	}
	if len(b) != netproxy.SeedBytes {
		return nil, fmt.Errorf("--ca-seed-file: %s has not %d bytes: remove it, and the daemon makes a new one, which "+
			"running programs do not trust", o.caSeed, netproxy.SeedBytes)
	}
	return b, nil
}

// upstreamProxy returns nil if there is no proxy.
func (o *options) upstreamProxy() (*upstream.Proxy, error) {
	if o.upstream == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.upstream) // #nosec G703 -- the operator names the file by a flag
	if err != nil {
		return nil, fmt.Errorf("--upstream-proxy-file: %w", err)
	}
	p, err := upstream.Parse(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("--upstream-proxy-file %s: %w", o.upstream, err)
	}
	return p, nil
}

func (o *options) floor() (*netpolicy.Floor, error) {
	var cfg netpolicy.FloorConfig
	for _, text := range o.private {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--net-private: %w", err)
		}
		cfg.Private = append(cfg.Private, p)
	}
	for _, text := range o.own {
		p, err := netpolicy.ParseOwn(text)
		if err != nil {
			return nil, fmt.Errorf("--own-address %w", err)
		}
		cfg.Own = append(cfg.Own, p)
	}
	for _, text := range o.hostPorts {
		ports, err := netpolicy.ParsePortRange(text)
		if err != nil {
			return nil, fmt.Errorf("--host-port %w", err)
		}
		cfg.HostPorts = append(cfg.HostPorts, ports)
	}
	target, err := netip.ParseAddr(o.hostAddress)
	if err != nil {
		return nil, fmt.Errorf("--host-address: %w", err)
	}
	cfg.HostTarget = target
	return netpolicy.NewFloor(cfg)
}

func (o *options) readCeiling(floor *netpolicy.Floor) (*netpolicy.Policy, error) {
	if o.ceiling == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.ceiling) // #nosec G703 -- the operator names the file by a flag
	if err != nil {
		return nil, fmt.Errorf("--ceiling: %w", err)
	}
	spec, err := netpolicy.ParseFile(o.ceiling, b)
	if err != nil {
		return nil, err
	}
	return netpolicy.CompileWithin(spec, netpolicy.Bounds{Floor: floor})
}
