package virtiotest

import (
	"encoding/binary"
	"fmt"

	"github.com/forkd/forkd/internal/vm/virtio"
)

// Registers and status bits of a driver (virtio 1.2 §4.2.2 and §2.1). They repeat the device's
// table, to reveal a typo in it.
const (
	RegMagic, RegVersion, RegDeviceID            = 0x0, 0x4, 0x8
	RegDeviceFeatures, RegDeviceFeaturesSel      = 0x10, 0x14
	RegDriverFeatures, RegDriverFeaturesSel      = 0x20, 0x24
	RegQueueSel, RegQueueSizeMax, RegQueueSize   = 0x30, 0x34, 0x38
	RegQueueReady, RegQueueNotify                = 0x44, 0x50
	RegInterruptStatus, RegInterruptACK          = 0x60, 0x64
	RegStatus                                    = 0x70
	RegQueueDesc, RegQueueDriver, RegQueueDevice = 0x80, 0x90, 0xa0
	RegConfigGeneration                          = 0xfc

	StatusAcknowledge, StatusDriver, StatusDriverOK = 1, 2, 4
	StatusFeaturesOK, StatusNeedsReset              = 8, 64
)

// Driver is a running driver of the device on a Bench.
type Driver struct {
	*Bench
	Features uint64   // the negotiated feature bits
	Queues   []*Queue // by the device's queue number
}

// Offered reads the device's feature bits.
func (b *Bench) Offered() uint64 {
	b.Write32(RegDeviceFeaturesSel, 1)
	hi := b.Read32(RegDeviceFeatures)
	b.Write32(RegDeviceFeaturesSel, 0)
	return uint64(hi)<<32 | uint64(b.Read32(RegDeviceFeatures))
}

// Negotiate resets the device and requests exactly these features.
func (b *Bench) Negotiate(features uint64) error {
	b.Write32(RegStatus, 0)
	b.Write32(RegStatus, StatusAcknowledge)
	b.Write32(RegStatus, StatusAcknowledge|StatusDriver)
	b.Write32(RegDriverFeaturesSel, 0)
	b.Write32(RegDriverFeatures, uint32(features))
	b.Write32(RegDriverFeaturesSel, 1)
	b.Write32(RegDriverFeatures, uint32(features>>32))
	b.Write32(RegStatus, StatusAcknowledge|StatusDriver|StatusFeaturesOK)
	if b.Read32(RegStatus)&StatusFeaturesOK == 0 {
		return fmt.Errorf("device refused features %#x", features)
	}
	return nil
}

// Start does a driver's probe, with the wanted features offered by the device. Queues get their
// maximum size.
func (b *Bench) Start(want uint64) (*Driver, error) {
	d := &Driver{Bench: b, Features: b.Offered() & (want | virtio.FeatureVersion1)}
	if err := b.Negotiate(d.Features); err != nil {
		return nil, err
	}
	for i := 0; ; i++ {
		b.Write32(RegQueueSel, uint32(i))
		size := b.Read32(RegQueueSizeMax)
		if size == 0 {
			break
		}
		q := newQueue(b, i, int(size), d.Features)
		d.Queues = append(d.Queues, q)
		b.SetQueue(i, size, q.desc, q.avail, q.used)
	}
	b.Write32(RegStatus, StatusAcknowledge|StatusDriver|StatusFeaturesOK|StatusDriverOK)
	if s := b.Read32(RegStatus); s&StatusNeedsReset != 0 {
		return nil, fmt.Errorf("device needs reset: %w", b.Fault())
	}
	return d, nil
}

// SetQueue programs a queue and makes it ready.
func (b *Bench) SetQueue(i int, size uint32, desc, avail, used uint64) {
	b.Write32(RegQueueSel, uint32(i))
	b.Write32(RegQueueSize, size)
	for _, a := range []struct{ reg, gpa uint64 }{{RegQueueDesc, desc}, {RegQueueDriver, avail}, {RegQueueDevice, used}} {
		b.Write32(a.reg, uint32(a.gpa))
		b.Write32(a.reg+4, uint32(a.gpa>>32))
	}
	b.Write32(RegQueueReady, 1)
}

// Move moves the driver, as part of a guest's memory, to a bench restored from this one's saved
// state and a clone of its memory.
func (d *Driver) Move(to *Bench) *Driver {
	n := &Driver{Bench: to, Features: d.Features}
	for _, q := range d.Queues {
		c := *q
		c.free = append([]uint16(nil), q.free...)
		c.chains = map[uint16][]uint16{}
		for k, v := range q.chains {
			c.chains[k] = append([]uint16(nil), v...)
		}
		c.bench = to
		c.bind()
		n.Queues = append(n.Queues, &c)
	}
	return n
}

// Seg is one buffer of a chain.
type Seg struct {
	GPA   uint64 // address of the first byte
	Len   int    // bytes
	Write bool   // for the device to write
}

// Queue is the driver's side of a split virtqueue.
type Queue struct {
	bench             *Bench
	index, size       int
	eventIdx          bool
	desc, avail, used uint64
	availIdx, usedIdx uint16
	kicked            uint16 // availIdx at the last Kick
	free              []uint16
	chains            map[uint16][]uint16 // head to its descriptors

	hAvail, hUsed, hAvailEvent, hUsedFlags, hUsedEvent virtio.Half
}

func newQueue(b *Bench, index, size int, features uint64) *Queue {
	q := &Queue{
		bench: b, index: index, size: size, chains: map[uint16][]uint16{},
		eventIdx: features&virtio.FeatureEventIdx != 0,
		desc:     b.Mem.Alloc(16 * size), avail: b.Mem.Alloc(6 + 2*size), used: b.Mem.Alloc(6 + 8*size),
	}
	for i := range size {
		q.free = append(q.free, uint16(i))
	}
	q.bind()
	return q
}

func (q *Queue) bind() {
	for h, gpa := range map[*virtio.Half]uint64{
		&q.hAvail: q.avail + 2, &q.hUsed: q.used + 2, &q.hUsedFlags: q.used,
		&q.hAvailEvent: q.used + 4 + 8*uint64(q.size), &q.hUsedEvent: q.avail + 4 + 2*uint64(q.size),
	} {
		var err error
		if *h, err = virtio.HalfAt(q.bench.Mem, gpa); err != nil {
			panic("virtiotest: " + err.Error())
		}
	}
}

// Desc writes one raw descriptor.
func (q *Queue) Desc(i uint16, gpa uint64, n uint32, flags, next uint16) {
	PutDesc(q.bench.Mem.Bytes(q.desc+16*uint64(i), 16), gpa, n, flags, next)
}

// PutDesc encodes a descriptor, for the table or an indirect one.
func PutDesc(b []byte, gpa uint64, n uint32, flags, next uint16) {
	binary.LittleEndian.PutUint64(b, gpa)
	binary.LittleEndian.PutUint32(b[8:], n)
	binary.LittleEndian.PutUint16(b[12:], flags)
	binary.LittleEndian.PutUint16(b[14:], next)
}

// Offer makes head available without any check or kick.
func (q *Queue) Offer(head uint16) {
	at := q.avail + 4 + 2*uint64(int(q.availIdx)%q.size)
	binary.LittleEndian.PutUint16(q.bench.Mem.Bytes(at, 2), head)
	q.availIdx++
	q.hAvail.Store(q.availIdx)
}

// SetAvailIdx forces the available index.
func (q *Queue) SetAvailIdx(v uint16) {
	q.availIdx = v
	q.hAvail.Store(v)
}

// Add makes a chain available. It returns false if the descriptors ran out.
func (q *Queue) Add(segs ...Seg) (head uint16, ok bool) {
	if len(segs) == 0 || len(segs) > len(q.free) {
		return 0, false
	}
	ids := append([]uint16(nil), q.free[:len(segs)]...)
	q.free = q.free[len(segs):]
	for i, s := range segs {
		var flags, next uint16
		if s.Write {
			flags |= 2
		}
		if i+1 < len(segs) {
			flags, next = flags|1, ids[i+1]
		}
		q.Desc(ids[i], s.GPA, uint32(s.Len), flags, next)
	}
	q.chains[ids[0]] = ids
	q.Offer(ids[0])
	return ids[0], true
}

// Kick notifies the device if it requested notifications.
func (q *Queue) Kick() {
	old := q.kicked
	q.kicked = q.availIdx
	if q.eventIdx {
		if q.availIdx-q.hAvailEvent.Load()-1 >= q.availIdx-old {
			return
		}
	} else if q.hUsedFlags.Load()&1 != 0 {
		return
	}
	q.ForceKick()
}

// ForceKick notifies the device.
func (q *Queue) ForceKick() { q.bench.Write32(RegQueueNotify, uint32(q.index)) }

// Used takes the next finished chain and frees its descriptors.
func (q *Queue) Used() (head uint16, written int, ok bool) {
	if q.hUsed.Load() == q.usedIdx {
		if !q.eventIdx {
			return 0, 0, false
		}
		q.hUsedEvent.Store(q.usedIdx) // interrupt at the next one, then look again
		if q.hUsed.Load() == q.usedIdx {
			return 0, 0, false
		}
	}
	e := q.bench.Mem.Bytes(q.used+4+8*uint64(int(q.usedIdx)%q.size), 8)
	q.usedIdx++
	head = uint16(binary.LittleEndian.Uint32(e))
	q.free = append(q.free, q.chains[head]...)
	delete(q.chains, head)
	return head, int(binary.LittleEndian.Uint32(e[4:])), true
}

// Wait waits for an interrupt until a chain is finished. It has no timeout except the test
// binary's.
func (q *Queue) Wait() (head uint16, written int) {
	for {
		if head, n, ok := q.Used(); ok {
			return head, n
		}
		<-q.bench.IRQ
		q.bench.Ack()
	}
}

// Ack reads and acknowledges the interrupt status, which it returns.
func (b *Bench) Ack() uint32 {
	s := b.Read32(RegInterruptStatus)
	b.Write32(RegInterruptACK, s)
	return s
}

// Exchange does one request. It copies out to guest memory and returns in bytes, cut to the length
// written by the device.
func (q *Queue) Exchange(out []byte, in int) ([]byte, error) {
	var segs []Seg
	if len(out) > 0 {
		segs = append(segs, Seg{GPA: q.bench.Mem.Put(out), Len: len(out)})
	}
	at := q.bench.Mem.Alloc(in)
	if in > 0 {
		segs = append(segs, Seg{GPA: at, Len: in, Write: true})
	}
	head, ok := q.Add(segs...)
	if !ok {
		return nil, fmt.Errorf("no free descriptors for %d segments", len(segs))
	}
	q.Kick()
	got, n, ok := q.Used() // no eventfd: the kick did the work
	if !ok || got != head || n > in {
		return nil, fmt.Errorf("chain %d: used %v, chain %d, %d bytes of %d: %w", head, ok, got, n, in, q.bench.Fault())
	}
	return append([]byte(nil), q.bench.Mem.Bytes(at, n)...), nil
}

// SetNoInterrupt sets or clears the driver's request for no interrupts, which is valid when
// EVENT_IDX is off.
func (q *Queue) SetNoInterrupt(on bool) {
	h, err := virtio.HalfAt(q.bench.Mem, q.avail)
	if err != nil {
		panic("virtiotest: " + err.Error())
	}
	if on {
		h.Store(1)
	} else {
		h.Store(0)
	}
}

// Offered returns the number of chains made available and not yet seen as used.
func (q *Queue) Offered() int { return int(q.availIdx - q.usedIdx) }
