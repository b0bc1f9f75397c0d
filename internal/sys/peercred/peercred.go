// Package peercred identifies the client of a Unix socket. The kernel stored its identity when the client connected
// (unix(7), SO_PEERCRED and SO_PEERGROUPS), so the client cannot choose it.
package peercred

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer is a client of a Unix socket.
type Peer struct {
	UID    uint32
	Member bool // of the group that Of looks for
}

// Of returns the peer of a connection. It returns false if the connection is not over a Unix socket, or if the kernel
// cannot tell. group is the group to look for; nil: none.
func Of(c net.Conn, group *uint32) (p Peer, ok bool) {
	s, is := c.(syscall.Conn)
	if _, unix := c.LocalAddr().(*net.UnixAddr); !is || !unix {
		return p, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return p, false
	}
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		ok, p.UID = true, cred.Uid
		p.Member = group != nil && (cred.Gid == *group || inGroups(int(fd), *group))
	})
	return p, ok && err == nil
}
