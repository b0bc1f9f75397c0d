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

// Config configures Wires.
type Config struct {
	// Connect connects to forkd-net. If nil, no sandbox has a network.
	Connect sandbox.NetConnect
	// Ceiling limits every policy. If nil, policies are not limited.
	Ceiling *netpolicy.Spec
	// Taps holds the operator's taps for sandboxes. It may be nil.
	Taps sandbox.Taps
	// Confined is set if VMMs are expected to be unable to connect a socket. The actual state of a
	// VMM is passed to Lend and Attach.
	Confined bool
	// Random returns bytes of cryptographic quality, for the names of wires.
	Random func(n int) ([]byte, error)
	// Trust makes a running sandbox's guest trust a certificate instead of an earlier one. If nil,
	// guests trust only the certificate they got with their identity.
	Trust func(ctx context.Context, sandbox, ca string) error
	// Secrets holds the secrets that policies refer to. If nil, references have no value.
	Secrets sandbox.SecretSource
	Log     *slog.Logger // receives lost and restored networks of sandboxes
}

// Wires holds the wires of all VMs. Its methods are safe for concurrent use.
type Wires struct {
	cfg      Config
	released chan struct{} // closed by Close: watchers release VMs that keep running
	watchers sync.WaitGroup

	mu    sync.Mutex      // guards the fields below, and parts of each Wire; never held across I/O
	port  sandbox.NetPort // nil if not connected, or not reconciled yet
	epoch int             // counts connections
	tried chan struct{}   // closed when the current attempt to connect is over
	wires map[string]*Wire
	taps  map[string]*Wire // holders, by the tap's name
}

// New returns Wires without a connection. Run makes one.
func New(c Config) *Wires {
	w := &Wires{cfg: c, released: make(chan struct{}), tried: make(chan struct{}), wires: map[string]*Wire{},
		taps: map[string]*Wire{}}
	if c.Connect == nil {
		close(w.tried)
	}
	if c.Secrets != nil {
		c.Secrets.Follow(func(owner string) { renew(w, owner) })
	}
	return w
}

// callTimeout bounds one request to forkd-net or to a VMM.
const callTimeout = 10 * time.Second

// connectPatience is how long a request waits for a connection being made.
const connectPatience = 3 * time.Second

// await returns the connection. It waits a short time for a running attempt to connect, and returns
// nil if there is no connection then.
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

// Off returns the reason why sandboxes have no network. It is empty if they can have one.
func (w *Wires) Off() string {
	if w.cfg.Connect == nil {
		return "this daemon has no forkd-net: sandboxes have no network"
	}
	return ""
}

// name returns a name never used by a VM of any daemon.
func (w *Wires) name(sandbox string) (string, error) {
	b, err := w.cfg.Random(6)
	if err != nil {
		return "", err
	}
	return sandbox + "." + hex.EncodeToString(b), nil
}

// Close releases forkd-net and all VMs, which keep running.
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
