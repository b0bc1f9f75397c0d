package peers

import (
	"fmt"
	"os"
	"path/filepath"
)

// Config selects the peers and their files, on this host.
type Config struct {
	Root        string // tree with Python, and programs missing on the host
	Firecracker string // path of the program; if empty, Firecracker is absent
	Image       string // directory of a forkd image, for Firecracker
	MemoryMiB   int
	Work        string // parent of temporary files; if empty, Root or the system's temporary directory
}

// All returns the peers in the order of the race. close removes their shared state.
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
		return os.Remove(h.Work) // each peer has removed its files below it
	}, nil
}

// workIn returns the directory for temporary files. If there is a root tree it is in the tree,
// where programs running in the tree can find the files.
func workIn(c Config) string {
	if c.Work == "" {
		return c.Root
	}
	return c.Work
}

// runsc returns gVisor on one of its platforms. kvm is the fast platform, ptrace runs on any host.
func runsc(h *Host, platform string, restore bool) *OCI {
	return &OCI{Host: h, Runtime: "runsc", Variant: platform, Restore: restore,
		Flags: []string{"--ignore-cgroups", "--network=none", "--platform=" + platform}}
}
