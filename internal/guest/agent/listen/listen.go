// Package listen opens the agent's listener from its textual address. The caller owns the listener.
// For a Unix socket, it first removes an old file, so only the agent may use the path.
package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/mdlayher/vsock"
)

// Open listens on vsock:PORT, tcp:HOST:PORT or unix:PATH.
func Open(addr string) (net.Listener, error) {
	kind, rest, _ := strings.Cut(addr, ":")
	switch kind {
	case "vsock":
		port, err := strconv.ParseUint(rest, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("parse vsock port %q: %w", rest, err)
		}
		// Any CID: the guest's own may be unknown now, and changes with a fork.
		l, err := vsock.ListenContextID(anyCID, uint32(port), nil)
		if err != nil {
			return nil, fmt.Errorf("listen on vsock port %d: %w", port, err)
		}
		return l, nil
	case "tcp":
		return open("tcp", rest)
	case "unix":
		if err := os.Remove(rest); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove old socket: %w", err)
		}
		return open("unix", rest)
	}
	return nil, fmt.Errorf("listen address %q: want vsock:PORT, tcp:HOST:PORT or unix:PATH", addr)
}

// anyCID is VMADDR_CID_ANY.
const anyCID = 0xffffffff

func open(network, addr string) (net.Listener, error) {
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}
