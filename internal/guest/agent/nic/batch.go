package nic

import (
	"encoding/binary"
	"iter"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// batch is requests of rtnetlink(7) in one message. It is not made by package netlink, which
// takes 64 KiB of memory for each answer.
type batch struct {
	b    []byte
	seq  uint32 // of the last request
	last int    // where in b that begins
}

var native = binary.NativeEndian

// setAddress asks for another hardware address and returns the request's number.
func (q *batch) setAddress(index int, mac net.HardwareAddr) uint32 {
	start := q.begin(unix.RTM_SETLINK, 0)
	q.b = append(q.b, unix.AF_UNSPEC, 0, 0, 0)    // struct ifinfomsg: family, type
	q.b = native.AppendUint32(q.b, uint32(index)) // index
	q.b = append(q.b, make([]byte, 8)...)         // flags, and which of them to change
	q.attribute(unix.IFLA_ADDRESS, mac)
	return q.end(start)
}

// setNeighbour asks for a permanent neighbour.
func (q *batch) setNeighbour(index int, ip netip.Addr, mac net.HardwareAddr) {
	family := byte(unix.AF_INET)
	if ip.Is6() {
		family = unix.AF_INET6
	}
	start := q.begin(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	q.b = append(q.b, family, 0, 0, 0)                 // struct ndmsg: family
	q.b = native.AppendUint32(q.b, uint32(index))      // index
	q.b = native.AppendUint16(q.b, unix.NUD_PERMANENT) // state
	q.b = append(q.b, 0, 0)                            // flags, type
	q.attribute(unix.NDA_DST, ip.AsSlice())
	q.attribute(unix.NDA_LLADDR, mac)
	q.end(start)
}

// begin appends a header, whose length end fills in.
func (q *batch) begin(kind, flags uint16) (start int) {
	start = len(q.b)
	q.last = start
	q.seq++
	q.b = append(q.b, 0, 0, 0, 0)
	q.b = native.AppendUint16(q.b, kind)
	q.b = native.AppendUint16(q.b, unix.NLM_F_REQUEST|flags)
	q.b = native.AppendUint32(q.b, q.seq)
	q.b = append(q.b, 0, 0, 0, 0) // to whom: the kernel
	return start
}

func (q *batch) end(start int) uint32 {
	native.PutUint32(q.b[start:], uint32(len(q.b)-start))
	return q.seq
}

// acknowledge has the last request answered also if nothing is wrong: one answer for all.
func (q *batch) acknowledge() {
	flags := q.b[q.last+6:]
	native.PutUint16(flags, native.Uint16(flags)|unix.NLM_F_ACK)
}

// attribute appends a value, and what fills it up to four bytes.
func (q *batch) attribute(kind uint16, value []byte) {
	q.b = native.AppendUint16(q.b, uint16(unix.SizeofRtAttr+len(value)))
	q.b = native.AppendUint16(q.b, kind)
	q.b = append(q.b, value...)
	q.b = append(q.b, make([]byte, aligned(len(value))-len(value))...)
}

func aligned(n int) int { return (n + 3) &^ 3 }

// errorsIn yields the answers in a message of the kernel's, by their requests' numbers: 0 is
// done. Other messages are passed over.
func errorsIn(b []byte) iter.Seq2[uint32, unix.Errno] {
	return func(yield func(uint32, unix.Errno) bool) {
		for len(b) >= unix.SizeofNlMsghdr {
			size := int(native.Uint32(b))
			if size < unix.SizeofNlMsghdr || size > len(b) {
				return
			}
			if native.Uint16(b[4:]) == unix.NLMSG_ERROR && size >= unix.SizeofNlMsghdr+4 {
				errno := -int32(native.Uint32(b[unix.SizeofNlMsghdr:]))
				if !yield(native.Uint32(b[8:]), unix.Errno(errno)) {
					return
				}
			}
			b = b[min(aligned(size), len(b)):]
		}
	}
}
