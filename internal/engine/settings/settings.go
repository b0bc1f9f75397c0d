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
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/sys/hostproc"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Config is what an engine is made of. What has a default may stay zero.
type Config struct {
	StoreDir  string // persistent: snapshots, layers
	RunDir    string // volatile (tmpfs), short: sockets have to fit in 107 bytes
	VMMBinary string // the forkd-vmm executable
	OpenKVM   func() (*os.File, error)
	// VMMSeccomp is what becomes of a VMM that makes a call which it has no need of; default seccomp.On.
	VMMSeccomp seccomp.Mode
	// Starter starts VMMs in a jail; nil: they are children of this process, in none.
	Starter client.Starter
	Images  sandbox.Images

	// PoolSize is the number of shells kept ready for the shape of every
	// snapshot that was made or forked in this run; SetPool overrides it by tag.
	PoolSize int
	// Concurrency is how many restores or identities are under way at once; default twice the CPUs.
	Concurrency int
	// Branches is how many branches may be under way at once; default 4.
	Branches int

	// GuestFork bounds the trees that guests make; default sandbox.DefaultTree.
	GuestFork sandbox.TreeLimits
	// GuestQuota is asked before a guest forks n children of its sandbox; release is called when those
	// are listed, or are not going to be. nil: nobody is asked.
	GuestQuota func(ctx context.Context, of sandbox.Info, n int) (release func(), _ error)

	BootWait        time.Duration // default DefaultBootWait
	RestoreTimeout  time.Duration // for one child; default 60 s
	IdentityTimeout time.Duration // for one child; default 60 s
	BranchTimeout   time.Duration // for a capture, and for writing it; default 2 min
	FailedKeep      time.Duration // how long a failed sandbox stays listed; default 1 h
	BootID          string        // names the host's boot; default: as the host says

	ChildMemory int64 // bytes that one child is reckoned to need; default 8 MiB
	DiskReserve int64 // bytes of the store's disk that layers and sandboxes' disks leave free
	HostReserve int64 // bytes of memory that stay free on the host; default 256 MiB

	// NoWorkingSet leaves out the recording of the working set when a snapshot is made:
	// that takes about as long as a fork, and makes later children ready sooner.
	NoWorkingSet bool

	// ScrubInterval is how often each layer is read whole in the background; 0: never.
	ScrubInterval time.Duration

	// KillOnClose ends the VMs when the engine closes; otherwise they run on and
	// the next engine over the same RunDir adopts them.
	KillOnClose bool

	Observer sandbox.Observer // may be nil
	Events   sandbox.Events   // is told what happens; may be nil
	Acts     sandbox.Acts     // is told what is done without a request; may be nil
	Logger   *slog.Logger
	Now      func() time.Time
	// Elapsed is a clock that nobody sets, for how long sandboxes are idle; default: since Complete.
	Elapsed func() time.Duration
	Rand    io.Reader // of cryptographic quality: it is the children's entropy
	// Host is what there is for VMs; nil: what this host has.
	Host Host

	// MemoryOvercommit is how many times the host's memory may be promised to sandboxes;
	// default 32. DiskOvercommit is the same of the store's file system; 0: any number of times.
	MemoryOvercommit, DiskOvercommit float64
	// Pressure is from which pressure of the host on less is admitted; nil: DefaultPressure.
	Pressure *Pressure

	// PauseUnused has sandboxes that nobody has used for so long paused while the host is short of memory, the one
	// that was not used for the longest first, if they go on by themselves (Life.AutoResume); 0: none is.
	PauseUnused time.Duration

	// Groups are what sandboxes are kept within limits by; nil: none may be asked for.
	Groups *cgroup.Root

	// NetConnect reaches forkd-net; nil: there is none, and sandboxes have no network.
	NetConnect sandbox.NetConnect
	// NetCeiling is the most that any sandbox may reach; nil: all that it asks for.
	NetCeiling *netpolicy.Spec
	// NetTaps are the operator's taps that sandboxes may have; nil: none.
	NetTaps sandbox.Taps

	// Oracle has every snapshot of a running sandbox compared, page by page, with
	// what its source was at that instant. It takes long, and is for tests.
	Oracle bool
}

// ExpectConfined reports whether VMM processes will be killed for system calls that they have no
// need of. That one is so it says itself when it is there.
func (c *Config) ExpectConfined() bool {
	return c.VMMSeccomp == seccomp.On && seccomp.Available() == nil
}

type nobody struct{}

func (nobody) Observe(sandbox.Op, time.Duration, error) {}

// longestSocket is the room that a socket's path needs below RunDir.
const longestSocket = len("/vm/v00000000/control.sock")

// Complete checks the configuration and sets what has a default and is zero.
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
	setDefault(&c.ChildMemory, 8<<20)
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

// Random returns a source of fresh random bytes that is safe for concurrent use, as Rand need not be.
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
