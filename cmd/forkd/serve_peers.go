//go:build linux

package main

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/api/peers"
)

// peerOptions are the daemon's flags for copies of snapshots from other daemons.
type peerOptions struct{ cfg peers.Config }

func (o *peerOptions) addFlags(f *pflag.FlagSet) {
	c := &o.cfg
	f.StringSliceVar(&c.Allow, "peer", nil,
		"copy snapshots from daemons on `HOST`, a name, an address or a CIDR block; may be repeated (default: none)")
	f.StringVar(&c.KeyFile, "peer-key-file", "",
		"show the key in `FILE` to peers; an operator's key with the scope layers is enough")
	f.StringVar(&c.CAFile, "peer-ca", "",
		"accept peers with certificates of an authority in `FILE` (default: the system's)")
	f.StringVar(&c.ServerName, "peer-server-name", "",
		"expect `NAME` in the certificates of peers (default: the host of their URL)")
	f.StringVar(&c.CertFile, "peer-cert", "", "show the certificate in `FILE` to peers")
	f.StringVar(&c.CertKeyFile, "peer-cert-key", "", "read its key from `FILE`")
	f.BoolVar(&c.Plain, "peer-plain-http", false,
		"allow peers without TLS; snapshots and the key can be read on the network")
}

func (o *peerOptions) complete() error {
	c := &o.cfg
	if (c.CertFile == "") != (c.CertKeyFile == "") {
		return exit.UsageError{Err: errors.New("--peer-cert and --peer-cert-key go together")}
	}
	if len(c.Allow) == 0 && (c.KeyFile != "" || c.CAFile != "" || c.ServerName != "" || c.CertFile != "" || c.Plain) {
		return exit.UsageError{Err: errors.New("the flags --peer-… go with --peer")}
	}
	return nil
}

// client returns the client of peers, or nil without peers.
func (o *peerOptions) client() (*peers.Client, error) {
	if len(o.cfg.Allow) == 0 {
		return nil, nil
	}
	c, err := peers.New(o.cfg)
	if err != nil {
		return nil, exit.UsageError{Err: err}
	}
	return c, nil
}
