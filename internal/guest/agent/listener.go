package agent

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// acceptPause keeps a failing listener from using all CPU time.
const acceptPause = 100 * time.Millisecond

// steady is a listener with an Accept that fails only if the listener was closed. The vsock device
// of a restored guest resets its connections, and an accept in progress may then fail. net/http
// would stop serving permanently.
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
