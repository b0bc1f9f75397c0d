package virtio_test

import (
	"encoding/binary"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

const (
	next, write, indirect = 1, 2, 4
	buf                   = 0x400 // some RAM for buffers
)

// Each case is one violation by a driver in a ring. The device must go to NEEDS_RESET, raise a
// configuration interrupt, stop serving, and work again after a reset.
func TestHostileRings(t *testing.T) {
	for name, attack := range map[string]func(q *virtiotest.Queue, m *virtiotest.Memory){
		"head out of range":          func(q *virtiotest.Queue, _ *virtiotest.Memory) { q.Offer(16) },
		"head far out of range":      func(q *virtiotest.Queue, _ *virtiotest.Memory) { q.Offer(0xffff) },
		"next out of range":          one(0, buf, 4, next, 16),
		"chain that loops on itself": one(0, buf, 4, next, 0),
		"chain that loops": func(q *virtiotest.Queue, _ *virtiotest.Memory) {
			q.Desc(0, buf, 4, next, 1)
			q.Desc(1, buf, 4, next, 0)
			q.Offer(0)
		},
		"loop of empty descriptors": one(0, buf, 0, next, 0),
		"buffer beyond RAM":         one(0, 1<<20, 4, 0, 0),
		"buffer across the end":     one(0, 1<<20-2, 4, 0, 0),
		"buffer that wraps":         one(0, ^uint64(0)-1, 4, 0, 0),
		"buffer of 4 GiB":           one(0, buf, 0xffffffff, write, 0),
		"readable after writable": func(q *virtiotest.Queue, _ *virtiotest.Memory) {
			q.Desc(0, buf, 4, write|next, 1)
			q.Desc(1, buf, 4, 0, 0)
			q.Offer(0)
		},
		"index jumps too far":          func(q *virtiotest.Queue, _ *virtiotest.Memory) { q.SetAvailIdx(18) },
		"index goes backwards":         func(q *virtiotest.Queue, _ *virtiotest.Memory) { q.SetAvailIdx(0xffff) },
		"indirect with next":           one(0, buf, 32, indirect|next, 1),
		"indirect table of 0 bytes":    one(0, buf, 0, indirect, 0),
		"indirect table of 17 bytes":   one(0, buf, 17, indirect, 0),
		"indirect table over the size": one(0, buf, 17*16, indirect, 0),
		"indirect table beyond RAM":    one(0, 1<<20, 32, indirect, 0),
		"indirect table that wraps":    one(0, ^uint64(0)-15, 32, indirect, 0),
		"nested indirect table": func(q *virtiotest.Queue, m *virtiotest.Memory) {
			virtiotest.PutDesc(m.Bytes(buf, 16), buf, 16, indirect, 0)
			q.Desc(0, buf, 16, indirect, 0)
			q.Offer(0)
		},
		"indirect next out of range": func(q *virtiotest.Queue, m *virtiotest.Memory) {
			virtiotest.PutDesc(m.Bytes(buf, 16), buf, 16, next, 1)
			q.Desc(0, buf, 16, indirect, 0)
			q.Offer(0)
		},
		"chain longer than the queue through a table": func(q *virtiotest.Queue, m *virtiotest.Memory) {
			for i := range 16 {
				virtiotest.PutDesc(m.Bytes(buf+uint64(16*i), 16), 0x100, 1, next, uint16(i+1))
			}
			m.Bytes(buf+15*16+12, 1)[0] = 0 // the last has no next: 16 in the table
			q.Desc(0, 0x100, 1, next, 1)    // and one before it
			q.Desc(1, buf, 256, indirect, 0)
			q.Offer(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, e := startEcho(t, allFeatures)
			q := d.Queues[0]
			if _, err := q.Exchange([]byte("ok"), 2); err != nil {
				t.Fatal(err)
			}
			d.Ack()
			attackThenCheck(t, d, func() { attack(q, d.Mem) })
			if _, err := q.Exchange([]byte("no"), 2); err == nil || e.seen != 1 {
				t.Errorf("a broken device served %d requests", e.seen)
			}
			again, err := d.Start(allFeatures)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := again.Queues[0].Exchange([]byte("ok"), 2); err != nil || string(got) != "ok" {
				t.Errorf("after reset: %q, %v", got, err)
			}
		})
	}
}

func one(i uint16, gpa uint64, n uint32, flags, next uint16) func(*virtiotest.Queue, *virtiotest.Memory) {
	return func(q *virtiotest.Queue, _ *virtiotest.Memory) {
		q.Desc(i, gpa, n, flags, next)
		q.Offer(i)
	}
}

func attackThenCheck(t *testing.T, d *virtiotest.Driver, attack func()) {
	t.Helper()
	attack()
	d.Queues[0].ForceKick()
	if d.Read32(virtiotest.RegStatus)&virtiotest.StatusNeedsReset == 0 || d.Fault() == nil {
		t.Error("the device goes on")
	}
	if d.Ack()&2 == 0 {
		t.Error("no configuration interrupt")
	}
}

func TestIndirectNeedsTheFeature(t *testing.T) {
	d, _ := startEcho(t, 0)
	attackThenCheck(t, d, func() { one(0, buf, 32, indirect, 0)(d.Queues[0], d.Mem) })
}

func TestHostileQueueLayouts(t *testing.T) {
	for name, l := range map[string]struct {
		size              uint32
		desc, avail, used uint64
		ok                bool
	}{
		"good":                      {16, 0x1000, 0x2000, 0x3000, true},
		"smaller than the maximum":  {8, 0x1000, 0x2000, 0x3000, true},
		"side by side":              {16, 0x1000, 0x1100, 0x1128, true},
		"size 0":                    {0, 0x1000, 0x2000, 0x3000, false},
		"size no power of two":      {12, 0x1000, 0x2000, 0x3000, false},
		"size over the maximum":     {32, 0x1000, 0x2000, 0x3000, false},
		"size of 65536 and 16":      {65536 + 16, 0x1000, 0x2000, 0x3000, false},
		"unaligned table":           {16, 0x1008, 0x2000, 0x3000, false},
		"unaligned available ring":  {16, 0x1000, 0x2001, 0x3000, false},
		"unaligned used ring":       {16, 0x1000, 0x2000, 0x3002, false},
		"table beyond RAM":          {16, 1 << 20, 0x2000, 0x3000, false},
		"table across the end":      {16, 1<<20 - 16, 0x2000, 0x3000, false},
		"available ring wraps":      {16, 0x1000, ^uint64(0) - 1, 0x3000, false},
		"used ring wraps":           {16, 0x1000, 0x2000, ^uint64(0) - 3, false},
		"used over available":       {16, 0x1000, 0x2000, 0x2000, false},
		"used over the table":       {16, 0x1000, 0x2000, 0x10f0, false},
		"table over available only": {16, 0x2000, 0x2000, 0x3000, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := virtiotest.New(t, newEcho(16), virtiotest.NewMemory(1<<20))
			if err := b.Negotiate(1 << 32); err != nil {
				t.Fatal(err)
			}
			b.SetQueue(0, l.size, l.desc, l.avail, l.used)
			b.Write32(virtiotest.RegStatus, 15)
			if broken := b.Read32(virtiotest.RegStatus)&virtiotest.StatusNeedsReset != 0; broken == l.ok {
				t.Errorf("needs reset: %v, fault %v", broken, b.Fault())
			}
		})
	}
}

func TestOddRegisterAccessesReadZero(t *testing.T) {
	b := virtiotest.New(t, newEcho(16), virtiotest.NewMemory(1<<16))
	for _, c := range []struct {
		off uint64
		n   int
	}{{0, 1}, {1, 4}, {0, 8}, {2, 2}, {0x34, 2}, {0xfff, 8}, {1 << 60, 4}} {
		p := make([]byte, c.n)
		b.MMIO.ReadMMIO(c.off, p)
		b.MMIO.WriteMMIO(c.off, p)
		for _, v := range p {
			if v != 0 {
				t.Errorf("read of %d bytes at %#x: % x", c.n, c.off, p)
			}
		}
	}
	b.Write32(virtiotest.RegQueueSel, 99)
	if b.Read32(virtiotest.RegQueueSizeMax) != 0 {
		t.Error("queue 99 has a size")
	}
}

// A driver that floods the ring from another goroutine cannot delay a pause or a reset.
func TestFloodDoesNotHoldUpPause(t *testing.T) {
	e := newEcho(16)
	b := virtiotest.NewAsync(t, e, virtiotest.NewMemory(1<<20))
	d, err := b.Start(allFeatures)
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	q := d.Queues[0]
	q.Desc(0, buf, 1, 0, 0)
	go func() { // offers the same chain for ever, as fast as it is taken
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if _, _, ok := q.Used(); ok || q.Offered() < 8 {
					q.Offer(0)
					q.ForceKick()
				}
			}
		}
	}()
	for range 20 {
		b.MMIO.Pause()
		if _, err := b.MMIO.Save(); err != nil {
			t.Error(err)
		}
		b.MMIO.Resume()
	}
	close(stop)
	<-done
	if b.Fault() != nil {
		t.Error(b.Fault())
	}
}

// FuzzChain interprets the input as a descriptor table, an available ring and
// RAM, and kicks.
func FuzzChain(f *testing.F) {
	loop := make([]byte, 64)
	virtiotest.PutDesc(loop, buf, 4, next, 1)
	virtiotest.PutDesc(loop[16:], buf, 4, next|write, 0)
	f.Add(loop, uint16(1), true)
	ind := make([]byte, 64)
	virtiotest.PutDesc(ind, 0x1000, 64, indirect, 0)
	f.Add(ind, uint16(3), false)
	f.Add([]byte{}, uint16(17), true)
	f.Fuzz(func(t *testing.T, table []byte, idx uint16, event bool) {
		e := newEcho(16)
		b := virtiotest.New(t, e, virtiotest.NewMemory(1<<16))
		features := uint64(1<<28 | 1<<32)
		if event {
			features |= 1 << 29
		}
		if err := b.Negotiate(features); err != nil {
			t.Fatal(err)
		}
		copy(b.Mem.Bytes(0x1000, 0x1000), table) // table, followed by the rest
		b.SetQueue(0, 16, 0x1000, 0x1100, 0x3000)
		b.Write32(virtiotest.RegStatus, 15)
		binary.LittleEndian.PutUint16(b.Mem.Bytes(0x1102, 2), idx)
		for range 3 {
			b.Write32(virtiotest.RegQueueNotify, 0)
		}
		if e.seen > 16 {
			t.Errorf("%d requests from %d entries", e.seen, idx)
		}
	})
}

// FuzzRegisters writes any values to any registers; three bytes choose each.
func FuzzRegisters(f *testing.F) {
	f.Add([]byte{0x70, 0, 1, 0x70, 0, 3, 0x24, 0, 1, 0x20, 0, 1, 0x70, 0, 11, 0x44, 0, 1, 0x70, 0, 15, 0x50, 0, 0, 0x70, 0, 0})
	f.Add([]byte{0x70, 0, 15, 0x44, 0, 1, 0x44, 0, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		b := virtiotest.New(t, newEcho(16), virtiotest.NewMemory(1<<16))
		for ; len(ops) >= 3; ops = ops[3:] {
			off := uint64(ops[0]) | uint64(ops[1]&1)<<8
			b.Write32(off, uint32(ops[2])<<(ops[1]>>1&0x18))
			b.Read32(off)
		}
		s := b.Read32(virtiotest.RegStatus)
		if s&virtiotest.StatusDriverOK != 0 && s&virtiotest.StatusFeaturesOK == 0 {
			t.Errorf("running without features, status %#x", s)
		}
		b.MMIO.Pause()
		state, err := b.MMIO.Save()
		if err != nil {
			t.Fatal(err)
		}
		if err := virtiotest.New(t, newEcho(16), b.Mem).MMIO.Restore(state); err != nil && !b.MMIO.NeedsReset() {
			t.Errorf("restore of what was saved: %v", err)
		}
	})
}

// FuzzRestore feeds the state decoder. An accepted state must run.
func FuzzRestore(f *testing.F) {
	d, _ := startEcho(f, allFeatures)
	d.MMIO.Pause()
	state, err := d.MMIO.Save()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state)
	f.Add(state[:40])
	f.Fuzz(func(t *testing.T, state []byte) {
		b := virtiotest.New(t, newEcho(16), virtiotest.NewMemory(1<<16))
		if b.MMIO.Restore(state) != nil {
			return
		}
		b.MMIO.Resume()
		b.Write32(virtiotest.RegQueueNotify, 0)
		b.MMIO.Pause()
		if _, err := b.MMIO.Save(); err != nil {
			t.Error(err)
		}
	})
}
