package virtio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

var (
	errUnaligned = errors.New("guest address is not aligned")
	errIndex     = errors.New("available index jumped by more than the queue size")
)

const (
	descSize     = 16
	usedElemSize = 8

	availNoInterrupt = 1 // avail.flags (virtio 1.2 §2.7.6)
	usedNoNotify     = 1 // used.flags (virtio 1.2 §2.7.8)
)

// queueLayout holds the driver's layout of one queue.
type queueLayout struct {
	size              uint16
	desc, avail, used GPA
}

// validate checks everything except the memory.
func (l queueLayout) validate(max uint16) error {
	switch {
	case l.size == 0 || l.size&(l.size-1) != 0 || l.size > max:
		return fmt.Errorf("queue size %d is not a power of two up to %d", l.size, max)
	case l.desc%16 != 0 || l.avail%2 != 0 || l.used%4 != 0: // virtio 1.2 §2.7
		return fmt.Errorf("ring at %#x, %#x, %#x: %w", l.desc, l.avail, l.used, errUnaligned)
	}
	return nil
}

// The sizes include the event fields, which exist even without EVENT_IDX.
func (l queueLayout) descLen() uint64  { return descSize * uint64(l.size) }
func (l queueLayout) availLen() uint64 { return 4 + 2*uint64(l.size) + 2 }
func (l queueLayout) usedLen() uint64  { return 4 + usedElemSize*uint64(l.size) + 2 }

// overlaps reports whether the used ring, which the device writes, shares bytes with one of the
// areas it reads. The ranges do not wrap.
func (l queueLayout) overlaps() bool {
	over := func(at GPA, n uint64) bool { return l.used < at+n && at < l.used+l.usedLen() }
	return over(l.desc, l.descLen()) || over(l.avail, l.availLen())
}

// Queue is the device's side of one split virtqueue. It is not safe for concurrent use: the
// device's lock guards it.
type Queue struct {
	mem  Memory
	size uint16 // power of two; 0 for a queue the driver left unready
	// indirect and eventIdx are the negotiated ring features.
	indirect, eventIdx bool
	// raise requests a used-buffer interrupt; fail breaks the whole device.
	raise func()
	fail  func(error)
	// broken is shared by the device's queues; a broken device's queues are empty. stopped has the
	// same effect for one queue (QueueReady written to 0).
	broken  *atomic.Bool
	stopped bool

	desc, avail, used  []byte
	availWord          Half // avail.idx
	availFlags         Half
	usedEvent          Half // driver: interrupt me after this used index
	availEvent         Half // device: notify me after this avail index
	usedWord           word // used.flags and used.idx, both the device's
	usedFlags          uint16
	nextAvail          uint16 // next avail entry to take
	nextUsed           uint16 // next used entry to write
	signalled          uint16 // nextUsed at the last interrupt decision
	signalledIsCurrent bool   // false after restore: the next decision is yes
}

// ringEnv holds the transport's values for all queues of a device.
type ringEnv struct {
	mem      Memory
	features uint64
	raise    func()
	fail     func(error)
	broken   *atomic.Bool
}

// newQueue checks the layout against memory. It does not access memory.
func newQueue(env ringEnv, l queueLayout, max uint16) (*Queue, error) {
	if err := l.validate(max); err != nil {
		return nil, err
	}
	q := unreadyQueue(env)
	q.size = l.size
	var err error
	if q.desc, err = sliceAt(env.mem, l.desc, l.descLen()); err != nil {
		return nil, fmt.Errorf("descriptor table: %w", err)
	}
	if q.avail, err = sliceAt(env.mem, l.avail, l.availLen()); err != nil {
		return nil, fmt.Errorf("available ring: %w", err)
	}
	if q.used, err = sliceAt(env.mem, l.used, l.usedLen()); err != nil {
		return nil, fmt.Errorf("used ring: %w", err)
	}
	if l.overlaps() {
		return nil, errors.New("used ring overlaps what the driver writes")
	}
	return q, q.bindFields(l)
}

// bindFields finds the atomically accessed fields of the rings.
func (q *Queue) bindFields(l queueLayout) error {
	for _, f := range []struct {
		half *Half
		gpa  GPA
	}{
		{&q.availFlags, l.avail},
		{&q.availWord, l.avail + 2},
		{&q.usedEvent, l.avail + l.availLen() - 2},
		{&q.availEvent, l.used + l.usedLen() - 2},
	} {
		var err error
		if *f.half, err = HalfAt(q.mem, f.gpa); err != nil {
			return fmt.Errorf("ring field at %#x: %w", f.gpa, err)
		}
	}
	var ok bool
	if q.usedWord, ok = wordAt(q.used, 0); !ok {
		return errUnaligned
	}
	return nil
}

// unreadyQueue returns a queue that is always empty.
func unreadyQueue(env ringEnv) *Queue {
	return &Queue{
		mem:      env.mem,
		indirect: env.features&FeatureIndirectDesc != 0,
		eventIdx: env.features&FeatureEventIdx != 0,
		raise:    env.raise,
		fail:     env.fail,
		broken:   env.broken,
	}
}

// Size returns the queue's size, or 0 if the driver did not set it up.
func (q *Queue) Size() int { return int(q.size) }

// usable reports whether the rings may be accessed.
func (q *Queue) usable() bool { return q.size != 0 && !q.stopped && !q.broken.Load() }

// Fail breaks the device because the driver violated a rule: all its queues become empty and the
// driver sees DEVICE_NEEDS_RESET.
func (q *Queue) Fail(err error) { q.fail(err) }

// Pop takes the next available chain into c and reuses its slices. It returns false if the queue is
// empty. An invalid chain breaks the device, and Pop returns false.
func (q *Queue) Pop(c *Chain) bool {
	n, ok := q.pending()
	if !ok || n == 0 {
		return false
	}
	at := 4 + 2*int(q.nextAvail&(q.size-1))
	head := binary.LittleEndian.Uint16(q.avail[at:])
	if err := c.load(q, head); err != nil {
		q.fail(fmt.Errorf("chain %d: %w", head, err))
		return false
	}
	q.nextAvail++
	return true
}

// PutBack reverses the last Pop. The chain must not have been pushed.
func (q *Queue) PutBack() { q.nextAvail-- }

// Empty reports whether no chain is available.
func (q *Queue) Empty() bool {
	n, ok := q.pending()
	return !ok || n == 0
}

// Available returns the number of chains to pop.
func (q *Queue) Available() int {
	n, _ := q.pending()
	return int(n)
}

// Broken reports whether a violation stopped the device.
func (q *Queue) Broken() bool { return q.broken.Load() }

// Published returns the driver's count of chains made available, modulo 65536.
func (q *Queue) Published() uint16 {
	if !q.usable() {
		return 0
	}
	return q.availWord.Load()
}

// NotifyNext requests a notification at the next chain added by the driver, even if others are
// still available. It returns Published from before the request.
func (q *Queue) NotifyNext() uint16 {
	n := q.Published()
	if !q.usable() {
		return n
	}
	if q.eventIdx {
		q.availEvent.Store(n)
	} else if q.usedFlags != 0 {
		q.usedFlags = 0
		q.publish()
	}
	return n
}

// pending returns the number of chains to pop.
func (q *Queue) pending() (uint16, bool) {
	if !q.usable() {
		return 0, false
	}
	n := q.availWord.Load() - q.nextAvail
	if n > q.size {
		q.fail(errIndex)
		return 0, false
	}
	return n, true
}

// Push returns a chain to the driver with the number of bytes written into it. The driver can see
// it now, but only Notify interrupts it.
func (q *Queue) Push(head uint16, written uint32) {
	if !q.usable() {
		return
	}
	q.use(Used{Head: head, Written: written})
	q.publish()
}

// Used is a chain to return, and the number of bytes written into it.
type Used struct {
	Head    uint16 // Chain.Head
	Written uint32 // bytes
}

// PushAll returns several chains holding one message. The driver sees either all or none of them.
func (q *Queue) PushAll(list []Used) {
	if !q.usable() {
		return
	}
	for _, u := range list {
		q.use(u)
	}
	q.publish()
}

// use writes the next entry of the used ring, which the driver does not see yet.
func (q *Queue) use(u Used) {
	at := 4 + usedElemSize*int(q.nextUsed&(q.size-1))
	binary.LittleEndian.PutUint32(q.used[at:], uint32(u.Head))
	binary.LittleEndian.PutUint32(q.used[at+4:], u.Written)
	q.nextUsed++
}

// publish stores flags and index in one write: both belong to the device.
func (q *Queue) publish() { q.usedWord.store(uint32(q.usedFlags) | uint32(q.nextUsed)<<16) }

// Notify interrupts the driver if it wants an interrupt for the chains pushed since the last
// Notify.
func (q *Queue) Notify() {
	if q.usable() && q.wantsInterrupt() {
		q.raise()
	}
}

func (q *Queue) wantsInterrupt() bool {
	if !q.eventIdx {
		return q.availFlags.Load()&availNoInterrupt == 0
	}
	old, current := q.signalled, q.signalledIsCurrent
	q.signalled, q.signalledIsCurrent = q.nextUsed, true
	if !current {
		return true
	}
	// virtio 1.2 §2.7.7.2: only if the index passed used_event since then.
	return q.nextUsed-q.usedEvent.Load()-1 < q.nextUsed-old
}

// DisableKicks asks the driver not to notify while the device checks the queue anyway. With
// EVENT_IDX, leaving avail_event unchanged is enough.
func (q *Queue) DisableKicks() {
	if q.usable() && !q.eventIdx && q.usedFlags == 0 {
		q.usedFlags = usedNoNotify
		q.publish()
	}
}

// EnableKicks requests a notification at the next chain. It reports whether a chain became
// available before the request was visible; the caller then checks the queue again.
func (q *Queue) EnableKicks() bool {
	if !q.usable() {
		return false
	}
	if q.eventIdx {
		q.availEvent.Store(q.nextAvail)
	} else {
		q.usedFlags = 0
		q.publish()
	}
	return !q.Empty()
}
