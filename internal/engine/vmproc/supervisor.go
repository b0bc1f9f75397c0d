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

// Config is what a Supervisor is made of.
type Config struct {
	Binary   string         // the forkd-vmm executable
	Starter  client.Starter // starts it in a jail; nil: as a child, in none
	KVM      *os.File       // /dev/kvm, which each VMM inherits
	RunDir   string         // the daemon's run directory
	VMs      *rundir.Dir    // the directory VMsName in it
	Overlays string         // directory of the overlay files; made if it is not there
	// DiskReserve is how many bytes of the overlays' file system stay free.
	DiskReserve int64
	// Groups are what VMs are kept within limits by; nil: nothing does.
	Groups *cgroup.Root
	// Dialer answers what a guest dials on the host. It is called before the process
	// is there; started is called with the process as soon as it is.
	Dialer func() (dial client.HostDialer, started func(*client.Process))
	// Seccomp is what the processes' filters of system calls do; empty: they have none.
	Seccomp seccomp.Mode
	// Random returns bytes of cryptographic quality.
	Random func(n int) ([]byte, error)
	Log    *slog.Logger
}

// Supervisor spawns, adopts and watches VM processes. Its methods are safe for
// concurrent use.
type Supervisor struct {
	cfg      Config
	nextVM   atomic.Uint64 // number of the last run directory
	nextCID  atomic.Uint32
	released chan struct{} // closed by Release: watchers let go of VMs that run on
	watchers sync.WaitGroup
	open     sync.Once // says that processes are not confined
}

// New makes a Supervisor. Release must be called when it is of no more use.
func New(c Config) (*Supervisor, error) {
	s := &Supervisor{cfg: c, released: make(chan struct{})}
	return s, s.beginCIDs()
}

// Release lets go of the VMs that still run, and waits until no owner is called any more.
func (s *Supervisor) Release() {
	close(s.released)
	s.watchers.Wait()
}

// firstCID is the lowest vsock context id of a guest; 0 to 2 have a meaning of their own.
const firstCID = 3

// beginCIDs begins to number guests at a random place. A snapshot of a running
// guest may outlive the daemon, and its agent tells a clone from the source by
// the context id alone: none may come again, though nobody kept a list.
func (s *Supervisor) beginCIDs() error {
	b, err := s.cfg.Random(4)
	if err != nil {
		return fmt.Errorf("number guests: %w", err)
	}
	s.nextCID.Store(firstCID + binary.LittleEndian.Uint32(b)>>1) // half of them are left to count through
	return nil
}

// noteCID makes sure that no new VM gets the context id of an old one.
func (s *Supervisor) noteCID(cid uint32) {
	for {
		next := s.nextCID.Load()
		if cid < next || s.nextCID.CompareAndSwap(next, cid+1) {
			return
		}
	}
}

// noteVM makes sure that no new VM's directory gets a name that is in use.
func (s *Supervisor) noteVM(dir string) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(dir, "v"), 10, 32); err == nil {
		s.nextVM.Store(max(s.nextVM.Load(), n))
	}
}
