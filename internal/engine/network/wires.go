package network

import (
	"context"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// Config is what Wires are made of.
type Config struct {
	// Connect reaches forkd-net; nil: there is none, and no sandbox has a network.
	Connect sandbox.NetConnect
	// Ceiling bounds every policy; nil: nothing does.
	Ceiling *netpolicy.Spec
	// Taps are those of the operator that sandboxes may have; nil: none.
	Taps sandbox.Taps
	// Confined says that VMMs are expected not to be able to connect a socket. Which one cannot is
	// known when it is there: Lend and Attach are told.
	Confined bool
	// Random returns bytes of cryptographic quality: names are made of them.
	Random func(n int) ([]byte, error)
	// Trust has the guest of a sandbox that runs trust a certificate, in place of an earlier one;
	// nil: guests trust what they were given at their identity only.
	Trust func(ctx context.Context, sandbox, ca string) error
	Log   *slog.Logger
}

// Wires are the wires of all VMs that have one. Their methods are safe for concurrent use.
type Wires struct {
	cfg      Config
	released chan struct{} // closed by Close: watchers let go of VMs that run on
	watchers sync.WaitGroup

	mu    sync.Mutex      // guards what follows, and parts of each Wire; never held across I/O
	port  sandbox.NetPort // nil: not connected, or not reconciled yet
	epoch int             // counts connections
	tried chan struct{}   // closed when the attempt to connect that is under way is over
	wires map[string]*Wire
	taps  map[string]*Wire // by the tap's name: who has it
}

// New makes Wires without a connection: Run makes one.
func New(c Config) *Wires {
	w := &Wires{cfg: c, released: make(chan struct{}), tried: make(chan struct{}), wires: map[string]*Wire{},
		taps: map[string]*Wire{}}
	if c.Connect == nil {
		close(w.tried)
	}
	return w
}

// callTimeout bounds one request to forkd-net or to a VMM.
const callTimeout = 10 * time.Second

// connectPatience is how long a request waits for a connection that is being made.
const connectPatience = 3 * time.Second

// await returns the connection, or nil if there is none, and no attempt under way that is over soon.
func (w *Wires) await(ctx context.Context) sandbox.NetPort {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	w.mu.Lock()
	port, tried := w.port, w.tried
	w.mu.Unlock()
	if port != nil {
		return port
	}
	select {
	case <-tried:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.port
}

// Off says why no sandbox has a network; empty: they can have one.
func (w *Wires) Off() string {
	if w.cfg.Connect == nil {
		return "this daemon has no forkd-net: nothing is reachable from sandboxes"
	}
	return ""
}

// name makes a name that no VM of any daemon had.
func (w *Wires) name(sandbox string) (string, error) {
	b, err := w.cfg.Random(6)
	if err != nil {
		return "", err
	}
	return sandbox + "." + hex.EncodeToString(b), nil
}

// Close lets go of forkd-net and of all VMs, which run on.
func (w *Wires) Close() {
	close(w.released)
	w.watchers.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, all := range []map[string]*Wire{w.wires, w.taps} {
		for _, x := range all {
			x.takeEndLocked().close()
		}
	}
	if w.port != nil {
		w.port.Close()
		w.port = nil
	}
}
