package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/forkd/forkd/internal/leaf/guestnet"
	"github.com/forkd/forkd/internal/vm/hostnet/tap"
	"github.com/forkd/forkd/internal/vm/memberlink"
	"github.com/forkd/forkd/internal/vm/netclient"
	"github.com/forkd/forkd/internal/vm/usernet"
	"github.com/forkd/forkd/internal/vm/virtio/net"
)

// network joins the guest's wire and its engine. It implements live.Network. Its descriptor is
// either a wire to forkd-net, with an engine in user mode, or a tap of the operator.
type network struct {
	netclient.Client
	members memberlink.Link // of the private network

	mu     sync.Mutex // guards the fields below
	tap    *os.File   // nil if there is no tap, or if the engine owns it
	tapped bool       // SetWire received a tap
	begun  bool       // an engine exists
}

func newNetwork() *network {
	n := &network{}
	n.Link = n.members.Set
	return n
}

var errTapped = errors.New("the VM has a network that cannot be exchanged while it runs")

// SetWire implements live.Network. The type of the descriptor distinguishes a wire from a tap.
func (n *network) SetWire(f *os.File) error {
	is := tap.Is(f)
	n.mu.Lock()
	refuse := n.tapped || is && n.begun
	if is && !refuse {
		n.tap, n.tapped = f, true
	}
	n.mu.Unlock()
	switch {
	case refuse:
		f.Close()
		return errTapped
	case is:
		return nil
	}
	return n.Client.SetWire(f)
}

// Wake implements live.Network.
func (n *network) Wake(start func()) { n.members.Wake(start) }

// Eager implements live.Network. Hosts behind a tap may ask for the guest's address first, and other
// members of a private network may connect before the guest has sent anything.
func (n *network) Eager() bool {
	if n.members.Exists() {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tapped
}

// NewEngine implements live.Network.
func (n *network) NewEngine(g net.Guest) net.Engine {
	n.mu.Lock()
	f := n.tap
	n.tap, n.begun = nil, true
	n.mu.Unlock()
	if f != nil {
		e, err := tap.New(tap.Config{Guest: g, File: f, Offloads: offloads(g), Warn: warn})
		if err == nil {
			return e
		}
		warn(err) // the guest gets a user-mode engine, which refuses all connections
	}
	return n.userMode(g)
}

func (n *network) userMode(g net.Guest) net.Engine {
	cfg := usernet.Config{Guest: g, Dialer: &n.Client, MTU: guestnet.MTU}
	if takes := offloads(g); takes != nil {
		cfg.Plain = func() bool {
			checksum, tso4, tso6 := takes()
			return !checksum || !tso4 || !tso6
		}
	}
	if m, ok := g.(memberlink.Guest); ok {
		return n.members.Join(m, usernet.New(cfg))
	}
	return usernet.New(cfg)
}

// offloads returns a function that reports the offloads of a guest's driver, or nil if they are
// unknown.
func offloads(g net.Guest) func() (checksum, tso4, tso6 bool) {
	if d, ok := g.(interface {
		Offloads() (checksum, tso4, tso6 bool)
	}); ok {
		return d.Offloads
	}
	return nil
}

// Close implements live.Network.
func (n *network) Close() {
	n.mu.Lock()
	f := n.tap
	n.tap = nil
	n.mu.Unlock()
	if f != nil {
		f.Close()
	}
	n.Client.Close()
	n.members.Close()
}

func warn(err error) { fmt.Fprintln(os.Stderr, "forkd-vmm:", err) }
