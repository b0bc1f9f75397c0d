package vsock

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

// FuzzPackets sends a stream of packets. Each starts with its own length in one byte. Half of the
// headers are patched to name a connection.
func FuzzPackets(f *testing.F) {
	seed := func(ops ...uint16) (s []byte) {
		for _, op := range ops {
			var b [headerSize]byte
			header{srcCID: testCID, dstCID: HostCID, srcPort: 9, dstPort: 1, kind: typeStream, op: op, bufAlloc: 4096, len: 2, flags: 3}.encode(&b)
			s = append(append(s, headerSize+2), b[:]...)
			s = append(s, 'h', 'i')
		}
		return s
	}
	f.Add(seed(opRequest, opData, opCreditRequest, opShutdown, opReset))
	f.Add(seed(opData, opReset, opResponse))
	f.Add(seed(opRequest, opRequest, 99))
	f.Add([]byte{3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, stream []byte) {
		dev := newDevice(ports{1: func(c Conn) { _, _ = io.Copy(c, c); _ = c.Close() }})
		d, err := virtiotest.New(t, dev, virtiotest.NewMemory(2<<20)).Start(^uint64(0))
		if err != nil {
			t.Fatal(err)
		}
		addReceive := func(n int) {
			for range n {
				d.Queues[0].Add(virtiotest.Seg{GPA: d.Mem.Alloc(256), Len: 256, Write: true})
			}
			d.Queues[0].Kick()
		}
		addReceive(8)
		for i := 0; len(stream) > 0 && i < 100; i++ {
			n := min(int(stream[0]), len(stream)-1)
			p := append([]byte(nil), stream[1:1+n]...)
			stream = stream[1+n:]
			if i%2 == 0 && n >= headerSize {
				binary.LittleEndian.PutUint64(p, testCID)
				binary.LittleEndian.PutUint64(p[8:], HostCID)
				binary.LittleEndian.PutUint32(p[20:], 1)
			}
			d.Queues[1].Add(virtiotest.Seg{GPA: d.Mem.Put(p), Len: len(p)})
			d.Queues[1].Kick()
			for ok := true; ok; {
				_, _, ok = d.Queues[1].Used()
			}
			for {
				head, n, ok := d.Queues[0].Used()
				if !ok {
					break
				}
				if n < headerSize || n > 256 {
					t.Errorf("chain %d: %d bytes in a buffer of 256", head, n)
				}
				addReceive(1)
			}
		}
		dev.mu.Lock()
		if len(dev.conns) > MaxConns || dev.backlog < 0 || dev.backlog > maxBacklog || len(dev.out.resets) > maxResets {
			t.Errorf("%d connections, %d bytes, %d resets", len(dev.conns), dev.backlog, len(dev.out.resets))
		}
		dev.mu.Unlock()
	})
}

// FuzzParseConnect feeds the line a client sends.
func FuzzParseConnect(f *testing.F) {
	f.Add("CONNECT 1024")
	f.Add("CONNECT 4294967296\r")
	f.Fuzz(func(t *testing.T, line string) {
		if _, err := parseConnect(line); err == nil && len(line) < len("CONNECT 0") {
			t.Errorf("took %q", line)
		}
	})
}

// FuzzRestoreState feeds the state decoder.
func FuzzRestoreState(f *testing.F) {
	f.Add(newDevice(nil).SaveState())
	f.Add([]byte{1, 0, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		dev := newDevice(nil)
		if dev.RestoreState(b) == nil && (dev.cid < MinGuestCID || dev.nextPort < firstPort) {
			t.Errorf("took cid %d, port %d", dev.cid, dev.nextPort)
		}
	})
}
