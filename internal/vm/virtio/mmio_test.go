package virtio_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio"
	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

func TestIdentityRegisters(t *testing.T) {
	b := virtiotest.New(t, newEcho(16), virtiotest.NewMemory(1<<16))
	for reg, want := range map[uint64]uint32{
		virtiotest.RegMagic: 0x74726976, virtiotest.RegVersion: 2, virtiotest.RegDeviceID: 4,
		virtiotest.RegStatus: 0, 0x0b0: 0xffffffff, 0x0fc: 0, 0x0f0: 0,
	} {
		if got := b.Read32(reg); got != want {
			t.Errorf("register %#x is %#x, want %#x", reg, got, want)
		}
	}
	if want := uint64(1<<3 | 1<<28 | 1<<29 | 1<<32); b.Offered() != want {
		t.Errorf("offered features %#x, want %#x", b.Offered(), want)
	}
}

func TestNegotiation(t *testing.T) {
	for _, c := range []struct {
		name     string
		features uint64
		ok       bool
	}{
		{"version 1 alone", virtio.FeatureVersion1, true},
		{"everything offered", 1<<3 | virtio.FeatureVersion1 | virtio.FeatureEventIdx | virtio.FeatureIndirectDesc, true},
		{"without version 1", 1 << 3, false},
		{"a device feature not offered", virtio.FeatureVersion1 | 1<<5, false},
		{"packed ring not offered", virtio.FeatureVersion1 | 1<<34, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := virtiotest.New(t, newEcho(16), virtiotest.NewMemory(1<<16))
			if err := b.Negotiate(c.features); (err == nil) != c.ok {
				t.Errorf("negotiate %#x: %v", c.features, err)
			}
		})
	}
}

func TestStatusOrderIsEnforced(t *testing.T) {
	for _, writes := range [][]uint32{{2}, {1, 4}, {1, 3, 7}, {4}, {1, 3, 15}, {1, 3, 1}} {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			b := virtiotest.New(t, newEcho(16), virtiotest.NewMemory(1<<16))
			for _, v := range writes {
				b.Write32(virtiotest.RegStatus, v)
			}
			if b.Read32(virtiotest.RegStatus)&virtiotest.StatusNeedsReset == 0 {
				t.Errorf("status is %#x, want NEEDS_RESET", b.Read32(virtiotest.RegStatus))
			}
			if b.Write32(virtiotest.RegStatus, 0); b.Read32(virtiotest.RegStatus) != 0 {
				t.Error("reset did not clear the status")
			}
		})
	}
}

func TestEchoWithEveryRingFeature(t *testing.T) {
	for _, f := range []uint64{0, virtio.FeatureEventIdx, virtio.FeatureIndirectDesc, allFeatures} {
		t.Run(fmt.Sprintf("%#x", f), func(t *testing.T) {
			d, _ := startEcho(t, f)
			for i := range 100 { // several times round the ring
				msg := bytes.Repeat([]byte{byte(i)}, i+1)
				got, err := d.Queues[0].Exchange(msg, len(msg))
				if err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
				if !bytes.Equal(got, msg) {
					t.Fatalf("request %d: got %q, want %q", i, got, msg)
				}
			}
			if d.Ack() != 1 {
				t.Error("no used-buffer interrupt")
			}
		})
	}
}

func TestIndirectChain(t *testing.T) {
	d, _ := startEcho(t, allFeatures)
	out, in := d.Mem.Put([]byte("hello")), d.Mem.Alloc(5)
	table := d.Mem.Alloc(32)
	virtiotest.PutDesc(d.Mem.Bytes(table, 16), out, 5, 1, 1)
	virtiotest.PutDesc(d.Mem.Bytes(table+16, 16), in, 5, 2, 0)
	d.Queues[0].Desc(3, table, 32, 4, 0)
	d.Queues[0].Offer(3)
	d.Queues[0].ForceKick()
	if head, n, ok := d.Queues[0].Used(); !ok || head != 3 || n != 5 {
		t.Fatalf("used %d, %d, %v: %v", head, n, ok, d.Fault())
	}
	if got := d.Mem.Bytes(in, 5); string(got) != "hello" {
		t.Errorf("got %q", got)
	}
}

func TestSuppressedInterrupts(t *testing.T) {
	d, _ := startEcho(t, 0)
	avail := d.Queues[0]
	avail.SetNoInterrupt(true)
	if _, err := avail.Exchange([]byte("x"), 1); err != nil {
		t.Fatal(err)
	}
	if s := d.Ack(); s != 0 {
		t.Errorf("interrupt status %d though the driver wanted none", s)
	}
}

func TestQueueReadyZeroStopsTheQueue(t *testing.T) {
	d, e := startEcho(t, allFeatures)
	d.Write32(virtiotest.RegQueueSel, 0)
	d.Write32(virtiotest.RegQueueReady, 0)
	if d.Read32(virtiotest.RegQueueReady) != 0 {
		t.Error("queue still ready")
	}
	if _, err := d.Queues[0].Exchange([]byte("x"), 1); err == nil || e.seen != 0 {
		t.Errorf("a stopped queue served %d requests", e.seen)
	}
}

func TestEventFDKicks(t *testing.T) {
	b := virtiotest.NewAsync(t, newEcho(16), virtiotest.NewMemory(1<<20))
	d, err := b.Start(allFeatures)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		at, in := b.Mem.Put([]byte("ping")), b.Mem.Alloc(4)
		d.Queues[0].Add(virtiotest.Seg{GPA: at, Len: 4}, virtiotest.Seg{GPA: in, Len: 4, Write: true})
		d.Queues[0].Kick()
		if _, n := d.Queues[0].Wait(); n != 4 || string(b.Mem.Bytes(in, 4)) != "ping" {
			t.Fatalf("got %d bytes, %q", n, b.Mem.Bytes(in, 4))
		}
	}
	for range 2 { // idempotent, and it ends the listener
		if err := b.MMIO.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSaveRestoreInMidStream(t *testing.T) {
	for _, f := range []uint64{0, allFeatures} {
		d, e := startEcho(t, f)
		q := d.Queues[0]
		for range 20 {
			if _, err := q.Exchange([]byte("before"), 6); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.MMIO.Save(); err == nil {
			t.Error("saved a running device")
		}
		d.MMIO.Pause()
		in := d.Mem.Alloc(5)
		q.Add(virtiotest.Seg{GPA: d.Mem.Put([]byte("later")), Len: 5}, virtiotest.Seg{GPA: in, Len: 5, Write: true})
		q.ForceKick() // dropped: the device is paused
		if _, _, ok := q.Used(); ok || e.seen != 20 {
			t.Fatal("a paused device worked")
		}
		state, err := d.MMIO.Save()
		if err != nil {
			t.Fatal(err)
		}
		e2 := newEcho(16)
		b2 := virtiotest.New(t, e2, d.Mem.Clone())
		if err := b2.MMIO.Restore(state); err != nil {
			t.Fatal(err)
		}
		for name, run := range map[string]*virtiotest.Driver{"restored": d.Move(b2), "source": d} {
			run.MMIO.Resume()
			if run.Ack() == 0 {
				t.Errorf("%s: no interrupt", name)
			}
			if _, n, ok := run.Queues[0].Used(); !ok || n != 5 || string(run.Mem.Bytes(in, 5)) != "later" {
				t.Errorf("%s: the waiting request was not served: %v", name, run.Fault())
			}
			for range 20 {
				if got, err := run.Queues[0].Exchange([]byte("after"), 5); err != nil || string(got) != "after" {
					t.Fatalf("%s: %q, %v", name, got, err)
				}
			}
		}
		if e2.seen != 41 || e2.features != d.Features {
			t.Errorf("restored device saw %d requests with features %#x", e2.seen, e2.features)
		}
		again, err := func() ([]byte, error) { b2.MMIO.Pause(); return b2.MMIO.Save() }()
		if err != nil || len(again) != len(state) {
			t.Errorf("second save: %d bytes, %v", len(again), err)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	d, _ := startEcho(t, allFeatures)
	d.MMIO.Pause()
	state, err := d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, v byte) []byte {
		c := append([]byte(nil), state...)
		c[at] = v
		return c
	}
	for name, bad := range map[string][]byte{
		"empty":                nil,
		"another version":      change(0, 9),
		"another device type":  change(2, 19),
		"a feature not there":  change(30+4, 0xff),
		"active before ok":     change(6, 1),
		"a flag that is 2":     change(38, 2),
		"too many queues":      change(39, 200),
		"size no power of two": change(40, 3),
		"ring outside RAM":     change(51, 0xff),
		"cut short":            state[:len(state)-1],
		"bytes left over":      append(change(0, 1), 0),
		"over the cap":         make([]byte, virtio.MaxStateBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			b := virtiotest.New(t, newEcho(16), d.Mem)
			if err := b.MMIO.Restore(bad); err == nil {
				t.Fatal("restored it")
			}
			if _, err := b.Start(allFeatures); err != nil {
				t.Errorf("unusable afterwards: %v", err)
			}
		})
	}
	if err := d.MMIO.Restore(state); err == nil {
		t.Error("restored into a device in use")
	}
}
