package forkcmd

import (
	"fmt"
	"net"

	"github.com/forkd/forkd/internal/guest/agent/forkcall"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
)

// dial connects to the agent. The answer has no time limit: a wait may take as long as its child.
func (c command) dial() (net.Conn, error) {
	conn, err := net.Dial("unix", c.socket)
	if err != nil {
		return nil, forkwire.Errorf(forkwire.Unavailable, "call the agent: %v", err)
	}
	return conn, nil
}

// call makes one call, from request to answer. If have is not nil, it gets the answer before the
// host forgets it.
func (c command) call(req forkwire.Request, result []byte,
	have func(forkwire.Answer, []byte) error) (forkwire.Answer, error) {
	conn, err := c.dial()
	if err != nil {
		return forkwire.Answer{}, err
	}
	defer conn.Close()
	if err := forkwire.WriteRequest(conn, req, result); err != nil {
		return forkwire.Answer{}, fmt.Errorf("call the agent: %w", err)
	}
	a, left, err := forkwire.ReadAnswer(forkwire.NewReader(conn))
	switch {
	case err != nil:
		return a, fmt.Errorf("call the agent: %w", err)
	case a.Error != nil:
		return a, a.Error
	case have == nil:
		return a, nil
	}
	if err := have(a, left); err != nil {
		return a, err
	}
	_, err = conn.Write([]byte{forkwire.Collected})
	return a, err
}

// defaultSocket is the agent's socket.
const defaultSocket = forkcall.Socket
