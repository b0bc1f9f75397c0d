package usernet

import (
	"encoding/binary"
	"errors"

	virtionet "github.com/forkd/forkd/internal/vm/virtio/net"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// Errors of frames. The guest gets no answer: only a broken driver or a hostile guest sends such
// frames.
var (
	errShort    = errors.New("frame is too short for its headers")
	errLong     = errors.New("frame is longer than the wire takes")
	errOffload  = errors.New("header before the frame does not fit it")
	errChecksum = errors.New("checksum is wrong")
	errMalform  = errors.New("packet is malformed")
)

// encodeEthernet writes a frame's header.
func encodeEthernet(frame []byte, to MAC, protocol uint16) {
	copy(frame, to[:])
	copy(frame[6:], gatewayMAC[:])
	binary.BigEndian.PutUint16(frame[12:], protocol)
}

// segment is the part of a packet covered by checksums and segmentation.
type segment struct {
	protocol Protocol
	offset   int    // of the transport's header in the frame
	pseudo   uint16 // checksum of the pseudo header
	bytes    []byte // from the transport's header on
	fragment bool
	ipv6     bool
}

// checkOffload checks a header against its frame (virtio 1.2 §5.1.6.2). It also checks the
// checksum, which the stack does not verify: the guest must either omit it or compute it correctly.
func checkOffload(h virtionet.Header, s segment, packet, mtu int) error {
	if h.GSOType&^virtionet.GSOECN == virtionet.GSONone {
		if packet > mtu {
			return errLong
		}
	} else if err := checkSegmentation(h, s, packet); err != nil {
		return err
	}
	at, ok := checksumOffset(s.protocol)
	if h.Flags&virtionet.NeedsChecksum == 0 {
		return verify(s, ok)
	}
	if s.fragment || !ok || int(h.ChecksumStart) != s.offset || int(h.ChecksumOffset) != at || len(s.bytes) < at+2 {
		return errOffload
	}
	return nil
}

// checkSegmentation checks a header's values for a frame of several segments.
func checkSegmentation(h virtionet.Header, s segment, packet int) error {
	want := uint8(virtionet.GSOTCPv4)
	if s.ipv6 {
		want = virtionet.GSOTCPv6
	}
	switch {
	case h.GSOType&^virtionet.GSOECN != want, h.GSOSize == 0, h.Flags&virtionet.NeedsChecksum == 0,
		s.protocol != TCP, s.fragment, packet > 65535:
		return errOffload
	}
	return nil
}

// udpChecksum is the offset of UDP's checksum in its header (RFC 768).
const udpChecksum = 6

// checksumOffset returns the offset of a protocol's checksum in its header.
func checksumOffset(p Protocol) (int, bool) {
	switch p {
	case TCP:
		return header.TCPChecksumOffset, true
	case UDP:
		return udpChecksum, true
	}
	return 0, false
}

// verify checks a transport's checksum. It skips fragments: their checksum covers bytes still to
// come, and this link does not lose data.
func verify(s segment, known bool) error {
	if !known || s.fragment {
		return nil
	}
	at, _ := checksumOffset(s.protocol)
	if len(s.bytes) < at+2 {
		return errShort
	}
	if s.protocol == UDP && binary.BigEndian.Uint16(s.bytes[at:]) == 0 {
		return nil // the sender computed none
	}
	if checksum.Checksum(s.bytes, s.pseudo) != 0xffff {
		return errChecksum
	}
	return nil
}
