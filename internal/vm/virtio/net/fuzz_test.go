package net

import (
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

// FuzzTransmit sends packets, header included, each after its length in one byte, to an engine that
// returns them.
func FuzzTransmit(f *testing.F) {
	seed := func(h Header, frame []byte) (b []byte) {
		b = append(b, byte(HeaderSize+len(frame)))
		b = append(b, make([]byte, HeaderSize)...)
		h.Encode(b[1:])
		return append(b, frame...)
	}
	f.Add(seed(Header{}, tcp(true, flagSYN, 1, 0, 0)))
	f.Add(seed(Header{Flags: NeedsChecksum, GSOType: GSOTCPv4, GSOSize: 10, ChecksumStart: 34, ChecksumOffset: 16}, tcp(true, flagACK, 1, 1, 60)))
	f.Add(append(seed(Header{}, udp()), seed(Header{}, plain(14))...))
	f.Fuzz(func(t *testing.T, stream []byte) {
		s := start(t, 0)
		s.open()
		s.wire.transmit = func(h Header, frame []byte) {
			if len(frame) < etherSize || len(frame) > maxFrame {
				t.Errorf("%d bytes", len(frame))
			}
			s.wire.guest.Receive(h, frame)
		}
		s.offer(16, 64)
		for len(stream) > 0 && !s.MMIO.NeedsReset() {
			n := min(int(stream[0]), len(stream)-1)
			s.Queues[queueTx].Add(virtiotest.Seg{GPA: s.Mem.Put(stream[1 : 1+n]), Len: n})
			s.Queues[queueTx].Kick()
			stream = stream[1+n:]
			for ok := true; ok; {
				_, _, ok = s.Queues[queueTx].Used()
			}
			for {
				if _, _, ok := s.got(); !ok {
					break
				}
				s.offer(1, 64)
			}
		}
	})
}

// FuzzControl feeds the control queue.
func FuzzControl(f *testing.F) {
	f.Add([]byte{1, 1, 2, 3, 4, 5, 6, 7})
	f.Add([]byte{0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := start(t, 0)
		if len(b) < controlHeader || len(b) > 1<<20 {
			return
		}
		before := s.Config(0, 6)
		if s.command(b...) == controlError && string(s.Config(0, 6)) != string(before) {
			t.Error("a refused command has changed the address")
		}
		if s.Config(0, 1)[0]&1 != 0 {
			t.Error("the guest's address is multicast")
		}
	})
}

// FuzzRestoreState feeds the state decoder.
func FuzzRestoreState(f *testing.F) {
	f.Add(newStation(f).dev.SaveState())
	f.Add([]byte{1, 0, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		dev := New(Config{MAC: guestMAC})
		if dev.RestoreState(b) == nil {
			if err := New(Config{}).RestoreState(dev.SaveState()); err != nil {
				t.Errorf("takes what it refuses of itself: %v", err)
			}
		}
	})
}
