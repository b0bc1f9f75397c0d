package op

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/sys/unixfd"
)

// readySignal waits for the guest to dial agentproto.ReadyPort and report that it is ready. Its
// owner closes it.
type readySignal struct {
	done chan struct{} // closed by the signal

	mu      sync.Mutex // guards the fields below
	ours    *os.File   // our end of the connection, once the guest dialled
	closed  bool
	reading sync.WaitGroup
}

func newReadySignal() *readySignal { return &readySignal{done: make(chan struct{})} }

// dial is the VM's HostDialer. The control socket's loop calls it, so it must not block.
func (r *readySignal) dial(port uint32) (*os.File, error) {
	if port != agentproto.ReadyPort {
		return nil, fmt.Errorf("host port %d is closed", port)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.ours != nil {
		return nil, errors.New("host port is in use")
	}
	ours, theirs, err := unixfd.Pair(unix.SOCK_STREAM, "ready")
	if err != nil {
		return nil, err
	}
	r.ours = ours
	r.reading.Go(func() { r.read(ours) })
	return theirs, nil
}

func (r *readySignal) read(f *os.File) {
	b := make([]byte, len(agentproto.ReadyMessage))
	if _, err := io.ReadFull(f, b); err == nil && string(b) == agentproto.ReadyMessage {
		close(r.done)
	}
}

func (r *readySignal) close() {
	r.mu.Lock()
	r.closed = true
	if r.ours != nil {
		r.ours.Close() // ends the read: the descriptor is non-blocking, so the runtime polls it
	}
	r.mu.Unlock()
	r.reading.Wait()
}
