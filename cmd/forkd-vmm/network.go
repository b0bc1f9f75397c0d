package main

import (
	"github.com/forkd/forkd/internal/guestnet"
	"github.com/forkd/forkd/internal/netwire/netclient"
	"github.com/forkd/forkd/internal/usernet"
	"github.com/forkd/forkd/internal/virtio/net"
)

// network joins the guest's wire and its engine: it implements live.Network.
type network struct{ netclient.Client }

// NewEngine implements live.Network.
func (n *network) NewEngine(g net.Guest) net.Engine {
	cfg := usernet.Config{Guest: g, Dialer: &n.Client, MTU: guestnet.MTU}
	if d, ok := g.(interface {
		Offloads() (checksum, tso4, tso6 bool)
	}); ok {
		cfg.Plain = func() bool {
			checksum, tso4, tso6 := d.Offloads()
			return !checksum || !tso4 || !tso6
		}
	}
	return usernet.New(cfg)
}
