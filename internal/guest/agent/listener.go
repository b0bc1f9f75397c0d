package agent

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// acceptPause keeps a listener in trouble from taking the processor.
const acceptPause = 100 * time.Millisecond

// steady is a listener whose Accept fails only when it was closed. A restored
// guest's vsock device resets its connections, and an accept that was under way
// may then fail; net/http would stop serving for good.
type steady struct {
	net.Listener
	log func(string, ...any)
}

func (s steady) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err == nil || closedListener(err) {
			return c, err
		}
		s.log("accept: %v", err)
		time.Sleep(acceptPause)
	}
}

func closedListener(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EBADF) || errors.Is(err, unix.EINVAL)
}
