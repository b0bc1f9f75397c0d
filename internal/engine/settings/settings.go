package settings

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/images/fetcher"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/store/signature"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Config configures an engine. Fields with a default may be zero.
type Config struct {
	StoreDir  string // persistent: snapshots, layers
	RunDir    string // volatile (tmpfs), short: sockets have to fit in 107 bytes
	VMMBinary string // the forkd-vmm executable
	// AgentBinary is the forkd-agent executable, which replaces older agents in guests. If empty, they stay.
	AgentBinary string
	OpenKVM     func() (*os.File, error) // opens /dev/kvm once, for all VMMs; required
	// VMMSeccomp selects the reaction to unneeded system calls of a VMM; default seccomp.On.
	VMMSeccomp seccomp.Mode
	// Starter starts VMMs in a jail. If nil, they are children of this process, without a jail.
	Starter client.Starter
	// Images finds images by name. It is required.
	Images sandbox.Images

	// PoolSize is the number of ready shells for the shape of every snapshot made or forked in this
	// run. SetPool overrides it by tag.
	PoolSize int
	// Concurrency is the number of concurrent restores or identities; default twice the CPUs.
	Concurrency int
	// Branches is the number of concurrent branches; default 4.
	Branches int

	// GuestFork limits the trees that guests make; default sandbox.DefaultTree.
	GuestFork sandbox.TreeLimits
	// GuestQuota is called before a guest forks n children of its sandbox. release is called when
	// the children are listed, or have failed. If nil, there is no quota.
	GuestQuota func(ctx context.Context, of sandbox.Info, n int) (release func(), _ error)

	BootWait        time.Duration // default DefaultBootWait
	RestoreTimeout  time.Duration // for one child; default 60 s
	IdentityTimeout time.Duration // for one child; default 60 s
	BranchTimeout   time.Duration // for a capture, and for writing it; default 2 min
	FailedKeep      time.Duration // how long a failed sandbox stays listed; default 1 h
	BootID          string        // identifies the host's boot; default: the host's own id

	ChildMemory int64 // assumed memory of one child, in bytes; default 8 MiB
	DiskReserve int64 // bytes of the store's disk that layers and sandboxes' disks leave free
	HostReserve int64 // bytes of memory that stay free on the host; default 256 MiB

	// NoWorkingSet disables the recording of working sets when a snapshot is made. The recording
	// takes about as long as a fork, and makes later children ready sooner.
	NoWorkingSet bool

	// ScrubInterval is how often each layer is read whole in the background. If 0, layers are never
	// scrubbed.
	ScrubInterval time.Duration

	// Published reports whether all tenants may fork a snapshot. Such a snapshot does not expire. If nil, no
	// snapshot is published.
	Published func(tag, contentHash string) bool

	// KillOnClose ends the VMs when the engine closes. Otherwise they keep running, and the next
	// engine over the same RunDir adopts them.
	KillOnClose bool

	Observer sandbox.Observer // may be nil
	Events   sandbox.Events   // receives events; may be nil
	Acts     sandbox.Acts     // receives actions without a request; may be nil
	Logger   *slog.Logger     // if nil, messages are discarded
	Now      func() time.Time // wall clock; default time.Now
	// Elapsed is a monotonic clock for idle times; default: the time since Complete.
	Elapsed func() time.Duration
	Rand    io.Reader // of cryptographic quality, used as the children's entropy
	// Host reports the resources for VMs. If nil, they are this host's.
	Host Host

	// MemoryOvercommit is how many times the host's memory may be promised to sandboxes; default
	// 32. DiskOvercommit is the same for the store's file system. If 0, the promises are not
	// limited.
	MemoryOvercommit, DiskOvercommit float64
	// Pressure holds the limits of the host's pressure above which less is admitted. If nil, it is
	// DefaultPressure.
	Pressure *Pressure

	// PauseUnused enables pausing unused sandboxes while the host is short of memory. It applies to
	// sandboxes with Life.AutoResume that were unused for at least this long, longest unused first.
	// If 0, it is disabled.
	PauseUnused time.Duration

	// SnapshotTrust decides about the signatures of a snapshot that a client sends, by the digest of
	// its manifest. If nil, none are required.
	SnapshotTrust func(all []signature.Signature, digest string) error

	// Fetcher fetches the rest of snapshots that are used before they are here. If nil, snapshots arrive whole.
	Fetcher *fetcher.Client
	// FetchFrom lists the registries from which tenants may have it fetched: HOST or HOST:PORT.
	FetchFrom []string

	// Secrets holds the tenants' secrets. If nil, the daemon keeps no secrets.
	Secrets sandbox.SecretSource

	// Identity signs identity tokens of sandboxes. If nil, the daemon issues none.
	Identity sandbox.IdentityIssuer

	// Groups holds the cgroups that enforce sandboxes' limits. If nil, limits cannot be requested.
	Groups *cgroup.Root

	// NetConnect connects to forkd-net. If nil, sandboxes have no network.
	NetConnect sandbox.NetConnect
	// NetCeiling limits the policy of every sandbox. If nil, policies are not limited.
	NetCeiling *netpolicy.Spec
	// NetTaps holds the operator's taps for sandboxes. It may be nil.
	NetTaps sandbox.Taps

	// Program is the version of the program, for the mark of the store directory.
	Program string
	// NodeKey is in the ids of new sandboxes, so that a gateway finds their node. It may be empty.
	NodeKey sandbox.NodeKey

	// Oracle compares every snapshot of a running sandbox, page by page, with its source at that
	// instant. It is slow, and for tests only.
	Oracle bool
}

// ExpectConfined reports whether VMM processes will be killed for unneeded system calls. Once a
// process exists, it confirms this itself.
func (c *Config) ExpectConfined() bool {
	return c.VMMSeccomp == seccomp.On && seccomp.Available() == nil
}

type nobody struct{}

func (nobody) Observe(sandbox.Op, time.Duration, error) {}

// DefaultChildMemory is the memory assumed for one child by default, in bytes.
const DefaultChildMemory = 8 << 20

// longestSocket is the length that a socket's path adds to RunDir.
const longestSocket = len("/vm/v00000000/control.sock")

// Complete checks the configuration and sets the defaults of zero fields.
func (c *Config) Complete() error {
	switch {
	case !filepath.IsAbs(c.StoreDir) || !filepath.IsAbs(c.RunDir):
		return fmt.Errorf("store directory %q and run directory %q must be absolute", c.StoreDir, c.RunDir)
	case len(c.RunDir)+longestSocket > 107: // unix(7): sun_path with its final zero
		return fmt.Errorf("run directory %q is too long for sockets in it, want at most %d bytes",
			c.RunDir, 107-longestSocket)
	case c.VMMBinary == "":
		return errors.New("no VMM binary")
	case c.OpenKVM == nil:
		return errors.New("no way to open KVM")
	case c.Images == nil:
		return errors.New("no image store")
	}
	setDefault(&c.VMMSeccomp, seccomp.On)
	setDefault(&c.Concurrency, 2*runtime.NumCPU())
	setDefault(&c.BootWait, sandbox.DefaultBootWait)
	setDefault(&c.RestoreTimeout, time.Minute)
	setDefault(&c.IdentityTimeout, time.Minute)
	setDefault(&c.Branches, 4)
	setDefault(&c.GuestFork, sandbox.DefaultTree)
	setDefault(&c.BranchTimeout, 2*time.Minute)
	setDefault(&c.FailedKeep, time.Hour)
	setDefault(&c.BootID, hostproc.BootID())
	setDefault(&c.ChildMemory, DefaultChildMemory)
	setDefault(&c.HostReserve, 256<<20)
	setDefault(&c.MemoryOvercommit, DefaultMemoryOvercommit)
	if c.Pressure == nil {
		p := DefaultPressure()
		c.Pressure = &p
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.Acts == nil {
		c.Acts = func(sandbox.Act) {}
	}
	if c.Events == nil {
		c.Events = func(string, string, map[string]string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Elapsed == nil {
		began := time.Now()
		c.Elapsed = func() time.Duration { return time.Since(began) }
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	return nil
}

// Random returns a source of fresh random bytes that is safe for concurrent use. Rand need not be.
func (c *Config) Random() func(n int) ([]byte, error) {
	var mu sync.Mutex
	return func(n int) ([]byte, error) {
		b := make([]byte, n)
		mu.Lock()
		defer mu.Unlock()
		if _, err := io.ReadFull(c.Rand, b); err != nil {
			return nil, fmt.Errorf("read random bytes: %w", err)
		}
		return b, nil
	}
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
