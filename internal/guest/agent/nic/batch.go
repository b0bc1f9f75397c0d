package nic

import (
	"encoding/binary"
	"iter"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// batch collects requests of rtnetlink(7) in one message. Package netlink is not used here, because
// it allocates 64 KiB for each answer.
type batch struct {
	b    []byte
	seq  uint32 // of the last request
	last int    // offset of the last request in b
}

var native = binary.NativeEndian

// setAddress adds a request for another hardware address and returns the request's number.
func (q *batch) setAddress(index int, mac net.HardwareAddr) uint32 {
	start := q.begin(unix.RTM_SETLINK, 0)
	q.b = append(q.b, unix.AF_UNSPEC, 0, 0, 0)    // struct ifinfomsg: family, type
	q.b = native.AppendUint32(q.b, uint32(index)) // index
	q.b = append(q.b, make([]byte, 8)...)         // flags and their change mask
	q.attribute(unix.IFLA_ADDRESS, mac)
	return q.end(start)
}

// setNeighbour adds a request for a permanent neighbour.
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

// begin appends a header. end fills in its length.
func (q *batch) begin(kind, flags uint16) (start int) {
	start = len(q.b)
	q.last = start
	q.seq++
	q.b = append(q.b, 0, 0, 0, 0)
	q.b = native.AppendUint16(q.b, kind)
	q.b = native.AppendUint16(q.b, unix.NLM_F_REQUEST|flags)
	q.b = native.AppendUint32(q.b, q.seq)
	q.b = append(q.b, 0, 0, 0, 0) // destination: the kernel
	return start
}

func (q *batch) end(start int) uint32 {
	native.PutUint32(q.b[start:], uint32(len(q.b)-start))
	return q.seq
}

// acknowledge requests an answer to the last request even on success, as one answer for all.
func (q *batch) acknowledge() {
	flags := q.b[q.last+6:]
	native.PutUint16(flags, native.Uint16(flags)|unix.NLM_F_ACK)
}

// attribute appends a value and pads it to four bytes.
func (q *batch) attribute(kind uint16, value []byte) {
	q.b = native.AppendUint16(q.b, uint16(unix.SizeofRtAttr+len(value)))
	q.b = native.AppendUint16(q.b, kind)
	q.b = append(q.b, value...)
	q.b = append(q.b, make([]byte, aligned(len(value))-len(value))...)
}

func aligned(n int) int { return (n + 3) &^ 3 }

// errorsIn yields the answers in a message from the kernel with the number of their requests. An
// error number of 0 means success. It skips other messages.
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
