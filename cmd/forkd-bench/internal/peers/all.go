package peers

import (
	"fmt"
	"os"
	"path/filepath"
)

// Config is who races, on this host.
type Config struct {
	Root        string // tree with Python, and with programs that the host lacks
	Firecracker string // program; empty: none
	Image       string // directory of an image of forkd's, for Firecracker
	MemoryMiB   int
	Work        string // directory for what is made; empty: in Root, or the system's for temporary files
}

// All are the peers in the order of the race. close removes what they had in common.
func All(c Config) (all []Peer, close func() error, err error) {
	for _, path := range []*string{&c.Root, &c.Firecracker, &c.Image} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, nil, err
		}
	}
	h := &Host{Root: c.Root}
	if h.Work, err = os.MkdirTemp(workIn(c), ".forkd-peers-"); err != nil {
		return nil, nil, fmt.Errorf("make a directory for the peers: %w", err)
	}
	all = []Peer{
		&OCI{Host: h, Runtime: "runc"},
		&OCI{Host: h, Runtime: "crun"},
		runsc(h, "kvm", false),
		runsc(h, "ptrace", false),
		runsc(h, "ptrace", true),
		&OCI{Host: h, Runtime: "runc", Restore: true},
		&Firecracker{Host: h, Program: c.Firecracker, Image: c.Image, MemoryMiB: c.MemoryMiB},
		Absent{"qemu microvm restore", "this program has no way to ask its guests: no vhost-vsock in the machine"},
	}
	return all, func() error {
		h.Close()
		return os.Remove(h.Work) // each peer has removed its own
	}, nil
}

// workIn is where things are made: in the tree if there is one, where programs that are
// run in it find them.
func workIn(c Config) string {
	if c.Work == "" {
		return c.Root
	}
	return c.Work
}

// runsc is gVisor on one of its platforms: kvm is the fast one, ptrace runs anywhere.
func runsc(h *Host, platform string, restore bool) *OCI {
	return &OCI{Host: h, Runtime: "runsc", Variant: platform, Restore: restore,
		Flags: []string{"--ignore-cgroups", "--network=none", "--platform=" + platform}}
}
