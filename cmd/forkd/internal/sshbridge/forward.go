package sshbridge

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/forkd/forkd/internal/leaf/duplex"
)

// directTCP is the payload of a direct-tcpip channel (RFC 4254, section 7.2).
type directTCP struct {
	Host       string
	Port       uint32
	OriginHost string
	OriginPort uint32
}

// dialLimit limits the connection to a port of the sandbox.
const dialLimit = 30 * time.Second

// forward connects a channel to a server in the sandbox.
func (s *server) forward(ctx context.Context, c ssh.NewChannel) {
	var to directTCP
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		_ = c.Reject(ssh.ConnectionFailed, "malformed request")
		return
	}
	if !local(to.Host) || to.Port == 0 || to.Port > math.MaxUint16 {
		_ = c.Reject(ssh.Prohibited, fmt.Sprintf("%s:%d is not a port of the sandbox's localhost", to.Host, to.Port))
		return
	}
	dialling, cancel := context.WithTimeout(ctx, dialLimit)
	conn, err := s.to.Dial(dialling, uint16(to.Port))
	cancel()
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, requests, err := c.Accept()
	if err != nil {
		conn.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	duplex.Join(ctx, conn, channelConn{Channel: ch})
}

// channelConn is a channel as a connection. It can end one direction alone.
type channelConn struct {
	ssh.Channel
	nowhere
}

// local reports whether an SSH client means the sandbox itself.
func local(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a.IsLoopback() || a.IsUnspecified())
}
