package vsock

import (
	"context"
	"runtime"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio/virtiotest"
)

// eventually waits until ok holds. It calls ok under the device's lock.
func eventually(dev *Device, ok func() bool) {
	for {
		dev.mu.Lock()
		done := ok()
		dev.mu.Unlock()
		if done {
			return
		}
		runtime.Gosched()
	}
}

// A host connection made after a restore must not reach the guest before the guest has handled the
// transport reset, which would kill it.
func TestHostConnectionsAreHeldUntilTheResetIsHandled(t *testing.T) {
	dev := newDevice(nil)
	g := startGuest(t, dev)
	g.listen(80)
	g.halt()
	g.d.MMIO.Pause()
	state, err := g.d.MMIO.Save()
	if err != nil {
		t.Fatal(err)
	}
	dev2 := newDevice(nil)
	g.keepEvents = true // the event is seen, but its buffer is not returned yet
	r := g.restore(t, dev2, state)
	r.d.MMIO.Resume()
	r.until(func() bool { return r.resets == 1 })

	a, b, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // test
	answer := make(chan error, 1)
	go func() { answer <- dev2.Connect(context.Background(), a, 80) }()
	eventually(dev2, func() bool { return len(dev2.conns) == 1 })
	stray := header{srcCID: testCID, dstCID: HostCID, srcPort: 77, dstPort: 1, kind: typeStream, op: opData}
	r.send(stray, nil) // answered with a reset, after all earlier packets
	r.until(func() bool { return len(r.seen) == 1 })
	r.mu.Lock()
	if len(r.conns) != 0 {
		t.Error("the request came before the reset was handled")
	}
	r.addEvent(r.d.Mem.Alloc(8))
	r.d.Queues[2].Kick()
	r.mu.Unlock()
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// When control packets take the only receive buffer, a connection that waits for one must still be
// woken for the next.
func TestWaiterHearsOfTheNextBuffer(t *testing.T) {
	host := make(chan Conn, 1)
	dev := newDevice(ports{1: func(c Conn) { host <- c }})
	d, err := virtiotest.New(t, dev, virtiotest.NewMemory(1<<20)).Start(^uint64(0))
	if err != nil {
		t.Fatal(err)
	}
	rx, tx := d.Queues[0], d.Queues[1]
	addBuffer := func() {
		rx.Add(virtiotest.Seg{GPA: d.Mem.Alloc(256), Len: 256, Write: true})
		rx.Kick()
	}
	send := func(srcPort uint32, op uint16) {
		var b [headerSize]byte
		header{srcCID: testCID, dstCID: HostCID, srcPort: srcPort, dstPort: 1, kind: typeStream, op: op, bufAlloc: 4096}.encode(&b)
		tx.Add(virtiotest.Seg{GPA: d.Mem.Put(b[:]), Len: headerSize})
		tx.ForceKick()
	}
	addBuffer()
	send(9, opRequest)
	rx.Wait() // the response
	if _, err := (<-host).Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	eventually(dev, func() bool { return len(dev.out.waiters) == 1 })
	send(10, opData) // for no connection: its reset waits too
	addBuffer()
	if _, n := rx.Wait(); n != headerSize {
		t.Fatalf("%d bytes, want the reset", n)
	}
	addBuffer()
	if _, n := rx.Wait(); n != headerSize+4 {
		t.Fatalf("%d bytes, want the data", n)
	}
}
