package netwire

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
)

// MaxDatagram is the largest datagram of a UDP or echo flow, and the largest packet of its socket
// without the prefix.
const MaxDatagram = 65535

// Prefixes of the packets on the socket of a UDP or echo flow.
const (
	PacketData    byte = 0 // a datagram follows
	PacketRefusal byte = 1 // a Reason follows, one byte; only forkd-net sends it
)

// StreamPair returns both ends of a relayed TCP flow.
func StreamPair() (a, b *os.File, err error) { return unixfd.Pair(unix.SOCK_STREAM, "stream") }

// DatagramPair returns both ends of a UDP or echo flow.
func DatagramPair() (a, b *os.File, err error) { return unixfd.Pair(unix.SOCK_SEQPACKET, "datagrams") }

// StreamFDs is StreamPair for callers without a need for files yet. The descriptors are in blocking
// mode, so an os.File made from one is not polled too early; both sides change that later.
func StreamFDs() (a, b int, err error) { return unixfd.Numbers(unix.SOCK_STREAM) }

// DatagramFDs is DatagramPair in the same form.
func DatagramFDs() (a, b int, err error) { return unixfd.Numbers(unix.SOCK_SEQPACKET) }

// RefusalPacket returns the packet for a refusal by the far end.
func RefusalPacket(r Reason) []byte { return []byte{PacketRefusal, byte(r)} }

// ParsePacket returns the contents of a packet: a datagram, or the reason of a refusal. refused is
// 0 for a datagram.
func ParsePacket(b []byte) (datagram []byte, refused Reason, err error) {
	switch {
	case len(b) > 0 && b[0] == PacketData:
		return b[1:], 0, nil
	case len(b) == 2 && b[0] == PacketRefusal && b[1] >= byte(Reset) && b[1] <= byte(TimedOut):
		return nil, Reason(b[1]), nil
	}
	return nil, 0, fmt.Errorf("%w: packet of %d bytes", ErrMessage, len(b))
}
