package balloon

import (
	"encoding/binary"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

// FuzzReport puts any descriptors into a queue for reports. The discarded memory is RAM, whole
// pages, and within the ranges.
func FuzzReport(f *testing.F) {
	desc := func(list ...[4]uint64) (b []byte) {
		for _, d := range list {
			b = append(b, make([]byte, 16)...)
			virtiotest.PutDesc(b[len(b)-16:], d[0], uint32(d[1]), uint16(d[2]), uint16(d[3]))
		}
		return b
	}
	f.Add(desc([4]uint64{0x40000, 0x2000, 3, 1}, [4]uint64{0x50000, 0x1001, 2, 0}), uint16(1))
	f.Add(desc([4]uint64{0x40000, 0xffffffff, 2, 0}), uint16(1))
	f.Add(desc([4]uint64{0x40000, 0x1000, 3, 0}), uint16(3))
	f.Add(desc([4]uint64{ramSize - 1, 1, 2, 0}, [4]uint64{1, 0, 4, 0}), uint16(2))
	f.Fuzz(func(t *testing.T, table []byte, heads uint16) {
		d, h := start(t, ^uint64(0))
		q := d.Queues[2]
		var most int64
		indirect := false // if true, the ranges are in an indirect table
		for i := range min(len(table)/16, queueSize) {
			b := table[16*i:]
			n := binary.LittleEndian.Uint32(b[8:])
			flags := binary.LittleEndian.Uint16(b[12:])
			most, indirect = most+int64(n), indirect || flags&4 != 0
			q.Desc(uint16(i), binary.LittleEndian.Uint64(b), n, flags, binary.LittleEndian.Uint16(b[14:]))
		}
		offered := min(int(heads), 2*queueSize)
		for i := range offered {
			q.Offer(uint16(i % queueSize))
		}
		q.ForceKick()
		var sum int64
		for _, s := range h.gone {
			if s.n <= 0 || s.gpa%pageSize != 0 || s.n%pageSize != 0 || s.gpa+uint64(s.n) > ramSize {
				t.Fatalf("%#x bytes went at %#x", s.n, s.gpa)
			}
			sum += s.n
		}
		if !indirect && sum > most*int64(offered) {
			t.Errorf("%d bytes went, %d were named", sum, most)
		}
	})
}

// FuzzRestoreState feeds the state decoder.
func FuzzRestoreState(f *testing.F) {
	f.Add(New(Config{}).SaveState())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := New(Config{}).RestoreState(b); err == nil && len(b) != 6 {
			t.Errorf("took a state of %d bytes", len(b))
		}
	})
}
