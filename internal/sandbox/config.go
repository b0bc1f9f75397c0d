package sandbox

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
	"time"

	"github.com/forkd/forkd/internal/sandbox/forktree"
)

// Config is what an Engine is made of. What has a default may stay zero.
type Config struct {
	StoreDir  string // persistent: snapshots, layers
	RunDir    string // volatile (tmpfs), short: sockets have to fit in 107 bytes
	VMMBinary string // the forkd-vmm executable
	OpenKVM   func() (*os.File, error)
	Images    Images

	// PoolSize is the number of shells kept ready for the shape of every
	// snapshot that was made or forked in this run; SetPool overrides it by tag.
	PoolSize int
	// Concurrency is how many restores or identities are under way at once; default twice the CPUs.
	Concurrency int
	// Branches is how many branches may be under way at once; default 4.
	Branches int

	// GuestFork bounds the trees that guests make; default forktree.Default.
	GuestFork forktree.Limits

	BootWait        time.Duration // default DefaultBootWait
	RestoreTimeout  time.Duration // for one child; default 60 s
	IdentityTimeout time.Duration // for one child; default 60 s
	BranchTimeout   time.Duration // for a capture, and for writing it; default 2 min
	FailedKeep      time.Duration // how long a failed sandbox stays listed; default 1 h

	ChildMemory int64 // bytes that one child is reckoned to need; default 8 MiB
	DiskReserve int64 // bytes of the store's disk that layers leave free
	HostReserve int64 // bytes of memory that stay free on the host; default 256 MiB

	// NoRehearsal leaves out the rehearsal of a child when a snapshot is made:
	// that takes about as long as a fork, and makes later children ready sooner.
	NoRehearsal bool

	// KillOnClose ends the VMs when the engine closes; otherwise they run on and
	// the next engine over the same RunDir adopts them.
	KillOnClose bool

	Observer Observer // may be nil
	Logger   *slog.Logger
	Now      func() time.Time
	Rand     io.Reader // of cryptographic quality: it is the children's entropy
	// MemAvailable is the host's available memory in bytes; default /proc/meminfo.
	MemAvailable func() (int64, error)

	// rolling is told each step of a rollback, before it; tests kill the daemon there.
	rolling func(step string)
}

// Images is the store of built images, as far as the engine needs it.
type Images interface {
	// Image finds an image by name; ErrNotFound if there is none.
	Image(ctx context.Context, name string) (Image, error)
}

// Image is what a parent boots.
type Image struct {
	Name, Digest     string
	Kernel           string // path of an ELF kernel
	Initrd           string // path; may be empty
	Root             string // path of the root disk, which is never written
	Upper            string // path of the packed, empty disk that takes what the guest writes; empty: memory does
	KernelVersion    string
	Cmdline          string // added to the kernel's command line
	MemoryMiB, VCPUs int
	Warm             []WarmStep
}

// WarmStep is code that is run in a language's interpreter before the snapshot.
type WarmStep struct {
	Language string
	Code     string // may be empty: only start the interpreter
}

// Op names an operation for an Observer.
type Op string

// The operations that are observed.
const (
	OpBoot     Op = "boot"
	OpSave     Op = "save"
	OpBranch   Op = "branch"   // its pause
	OpRollback Op = "rollback" // one request
	OpFork     Op = "fork"     // one request, all children
	OpRestore  Op = "restore"  // one child, shell included
	OpIdentity Op = "identity" // one child
	OpExec     Op = "exec"
	OpEval     Op = "eval"
)

// Observer is told how long things took. It must not block.
type Observer interface {
	Observe(op Op, took time.Duration, err error)
}

type nobody struct{}

func (nobody) Observe(Op, time.Duration, error) {}

// longestSocket is the room that a socket's path needs below RunDir.
const longestSocket = len("/vm/v00000000/control.sock")

func (c *Config) complete() error {
	switch {
	case !filepath.IsAbs(c.StoreDir) || !filepath.IsAbs(c.RunDir):
		return fmt.Errorf("store directory %q and run directory %q must be absolute", c.StoreDir, c.RunDir)
	case len(c.RunDir)+longestSocket > 107: // unix(7): sun_path with its final zero
		return fmt.Errorf("run directory %q is too long for sockets in it, want at most %d bytes", c.RunDir, 107-longestSocket)
	case c.VMMBinary == "":
		return errors.New("no VMM binary")
	case c.OpenKVM == nil:
		return errors.New("no way to open KVM")
	case c.Images == nil:
		return errors.New("no image store")
	}
	setDefault(&c.Concurrency, 2*runtime.NumCPU())
	setDefault(&c.BootWait, DefaultBootWait)
	setDefault(&c.RestoreTimeout, time.Minute)
	setDefault(&c.IdentityTimeout, time.Minute)
	setDefault(&c.Branches, 4)
	setDefault(&c.GuestFork, forktree.Default)
	setDefault(&c.BranchTimeout, 2*time.Minute)
	setDefault(&c.FailedKeep, time.Hour)
	setDefault(&c.ChildMemory, 8<<20)
	setDefault(&c.HostReserve, 256<<20)
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.rolling == nil {
		c.rolling = func(string) {}
	}
	if c.MemAvailable == nil {
		c.MemAvailable = HostMemAvailable
	}
	return nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
