//go:build linux

package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/internal/api/ingress"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// addAPIFlags adds the flags for listeners, authentication and the APIs.
func (o *serveOptions) addAPIFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.listen, "listen", nil,
		"listen on `ADDRESS`: tcp://HOST:PORT or unix:///PATH; may be repeated (default: RUN/forkd.sock)")
	f.StringVar(&o.socketGroup, "socket-group", "",
		"let members of `GROUP` use the Unix sockets as the operator (default: root and the daemon's user only)")
	f.StringVar(&o.tokenFile, "token-file", "",
		"read the token of TCP clients from `FILE` (default: make one in RUN/token)")
	f.StringVar(&o.keysFile, "keys-file", "",
		"accept the keys in `FILE`, too, made by forkd key create --file: it is read again when changed, never "+
			"written, and may be shared by several daemons (default: none)")
	o.tls.addFlags(f)
	f.StringSliceVar(&o.corsOrigins, "cors-origin", nil,
		"allow pages of `ORIGIN`, such as https://app.example.com, to call the APIs from a browser; may be "+
			"repeated (default: none)")
	f.BoolVar(&o.page, "ui", true,
		"serve the web page at /ui/ of the same addresses; users log in with a token or key (see forkd ui)")
	f.StringVar(&o.domain, "domain", ingress.DefaultDomain,
		"serve ports of sandboxes at http://PORT-ID.`DOMAIN`; empty: through the API only")
	f.BoolVar(&o.e2b, "e2b", true,
		"serve E2B's API on the same addresses; needs a domain (see forkd e2b env)")
	f.BoolVar(&o.e2bPrivatePorts, "e2b-private-ports", false,
		"require a token for ports of sandboxes made by E2B's API, unless allowPublicTraffic is true")
	o.signatures.addFlags(f)
	f.StringVar(&o.secretsKey, "secrets-key", "",
		"keep secrets encrypted with the key in `FILE`, made by forkd secret generate-key (default: systemd's "+
			"credential forkd-secrets-key, otherwise no secrets)")
	o.issuer.addFlags(f)
	f.StringArrayVar(&o.guestFiles, "guest-files", nil,
		"allow requests to name kernel and rootfs below `DIR`; may be repeated (default: none)")
}

// addStorageFlags adds the flags for the daemon's directories.
func (o *serveOptions) addStorageFlags(f *pflag.FlagSet) {
	f.StringVar(&o.data, "data", "",
		"store images and snapshots in `DIR` (default: /var/lib/forkd, or in the home directory)")
	f.StringVar(&o.run, "run", "",
		"keep sockets and state of running VMs in `DIR`, empty or made by forkd (default: /run/forkd, or "+
			"$XDG_RUNTIME_DIR/forkd)")
	f.IntVar(&o.diskReserveMiB, "disk-reserve", 256,
		"keep `MIB` of the disk under --data free: without it snapshots are refused and writing sandboxes paused")
	o.retention.addFlags(f)
	o.fetch.addFlags(f)
	f.DurationVar(&o.scrub, "scrub-interval", 24*time.Hour,
		"read and check each layer in the background every `DURATION`; 0: never")
}

// addClusterFlags adds the flags for a node among others.
func (o *serveOptions) addClusterFlags(f *pflag.FlagSet) {
	o.node.addFlags(f)
	o.peers.addFlags(f)
}

// addVMFlags adds the flags for VMM processes.
func (o *serveOptions) addVMFlags(f *pflag.FlagSet) {
	f.StringVar(&o.vmm, "vmm", "", "start VMs with the forkd-vmm program `FILE` (default: beside forkd)")
	f.StringVar(&o.kvm, "kvm", "/dev/kvm", "use the KVM device `FILE`")
	f.StringVar(&o.seccomp, "vmm-seccomp", string(seccomp.On),
		"on a denied system call of a VMM, take `ACTION`: on, log, trap or off")
	_ = f.MarkHidden("vmm-seccomp") // for finding calls that a list lacks: users should not need to turn it off
	f.StringVar(&o.cgroup, "cgroup", cgroupAuto,
		"put VMs into cgroups by `MODE`: auto (if the host allows), off (VMs cannot be limited), or the path of "+
			"a delegated group")
	o.jail.addFlags(f)
	f.IntVar(&o.pool, "pool", 0,
		"keep `N` unprepared VMs ready for each size in use (see forkd pool)")
	f.IntVar(&o.concurrency, "concurrency", 0, "restore up to `N` children at a time (default: twice the CPUs)")
	f.DurationVar(&o.identity, "identity-timeout", time.Minute,
		"fail a child unless its guest confirms its identity within `DURATION`")
}

// addTreeFlags adds the flags for trees of guest forks.
func (o *serveOptions) addTreeFlags(f *pflag.FlagSet) {
	f.IntVar(&o.guestFork.Size, "guest-fork-max-tree", sandbox.DefaultTree.Size,
		"limit a fork tree to `N` sandboxes; 1: forbid forks by guests")
	f.IntVar(&o.guestFork.Depth, "guest-fork-max-depth", sandbox.DefaultTree.Depth,
		"limit a fork tree to `N` generations of forks by guests")
	f.IntVar(&o.guestFork.MemoryMiB, "guest-fork-max-memory", sandbox.DefaultTree.MemoryMiB,
		"limit a fork tree to `MIB` of guest memory in total")
}

// addHostFlags adds the flags for the host's memory and for admission.
func (o *serveOptions) addHostFlags(f *pflag.FlagSet) {
	f.IntVar(&o.reserveMiB, "memory-reserve", 256,
		"keep `MIB` of the host's memory free; further children are refused")
	o.memory.addFlags(f)
	o.admission.addFlags(f)
}

// addEndFlags adds the flags for the end of the daemon.
func (o *serveOptions) addEndFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.killOnStop, "kill-on-stop", false, "end the sandboxes when the daemon stops")
	f.DurationVar(&o.idleExit, "idle-exit", 0,
		"exit after `DURATION` without sandboxes and requests; 0: never (started by a command: "+
			"$FORKD_DAEMON_IDLE, or 10m)")
}

// addLogFlags adds the flags for the log and the audit log.
func (o *serveOptions) addLogFlags(f *pflag.FlagSet) {
	o.logs.Add(f)
	o.audit.addFlags(f)
	o.traces.addFlags(f)
}
