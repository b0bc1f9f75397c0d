package vmproc

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/forkd/forkd/internal/confine/cgroup"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/sys/rundir"
	"github.com/forkd/forkd/internal/vm/vmctl/client"
)

// Config configures a Supervisor.
type Config struct {
	Binary   string         // the forkd-vmm executable
	Starter  client.Starter // starts it in a jail; if nil, it is a plain child
	KVM      *os.File       // /dev/kvm, which each VMM inherits
	RunDir   string         // the daemon's run directory
	VMs      *rundir.Dir    // the directory VMsName in it
	Overlays string         // directory of the overlay files; created if missing
	// DiskReserve is the number of bytes that stay free on the overlays' file system.
	DiskReserve int64
	// Groups holds the cgroups that enforce VMs' limits. If nil, limits are not enforced.
	Groups *cgroup.Root
	// Dialer returns the dialer for a guest's connections to the host. Dialer is called before the
	// process exists; started is called with the process as soon as it exists.
	Dialer func() (dial client.HostDialer, started func(*client.Process))
	// Seccomp is the mode of the processes' system call filters. If empty, they have no filters.
	Seccomp seccomp.Mode
	// Random returns bytes of cryptographic quality.
	Random func(n int) ([]byte, error)
	Log    *slog.Logger // receives health changes of VMs, and unexpected files and cgroups
}

// Supervisor spawns, adopts and watches VM processes. Its methods are safe for concurrent use.
type Supervisor struct {
	cfg      Config
	nextVM   atomic.Uint64 // number of the last run directory
	nextCID  atomic.Uint32
	released chan struct{} // closed by Release: watchers release VMs that keep running
	watchers sync.WaitGroup
	open     sync.Once // logs once that processes are not confined
}

// New returns a Supervisor. The caller must call Release when done.
func New(c Config) (*Supervisor, error) {
	s := &Supervisor{cfg: c, released: make(chan struct{})}
	return s, s.beginCIDs()
}

// Release releases the running VMs, and waits until no owner is called any more.
func (s *Supervisor) Release() {
	close(s.released)
	s.watchers.Wait()
}

// firstCID is the lowest vsock context id of a guest; 0 to 2 are reserved.
const firstCID = 3

// beginCIDs starts numbering guests at a random value. A snapshot of a running guest may outlive
// the daemon, and its agent distinguishes a clone from the source only by the context id. An id
// must therefore not repeat, although the daemon keeps no list.
func (s *Supervisor) beginCIDs() error {
	b, err := s.cfg.Random(4)
	if err != nil {
		return fmt.Errorf("number guests: %w", err)
	}
	s.nextCID.Store(firstCID + binary.LittleEndian.Uint32(b)>>1) // leaves half of them to count through
	return nil
}

// noteCID ensures that no new VM gets the context id of an old one.
func (s *Supervisor) noteCID(cid uint32) {
	for {
		next := s.nextCID.Load()
		if cid < next || s.nextCID.CompareAndSwap(next, cid+1) {
			return
		}
	}
}

// noteVM ensures that no new VM gets a directory name in use.
func (s *Supervisor) noteVM(dir string) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(dir, "v"), 10, 32); err == nil {
		s.nextVM.Store(max(s.nextVM.Load(), n))
	}
}
