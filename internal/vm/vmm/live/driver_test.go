package live

import "github.com/forkd/forkd/internal/vm/boot"

// Registers of a virtio-mmio window (virtio 1.2 §4.2.2).
const (
	regDriverFeatures    = 0x020
	regDriverFeaturesSel = 0x024
	regQueueSel          = 0x030
	regQueueSize         = 0x038
	regQueueReady        = 0x044
	regQueueNotify       = 0x050
	regInterruptACK      = 0x064
	regStatus            = 0x070
	regQueueDesc         = 0x080
	regQueueDriver       = 0x090
	regQueueDevice       = 0x0a0

	statusStarted    = 1 | 2 | 8 // acknowledged, driver, features
	statusDriverOK   = statusStarted | 4
	statusNeedsReset = 64

	featIndirect = 1 << 28
	featVersion1 = 1 << 32

	flagNext, flagWrite, flagIndirect = 1, 2, 4

	// awaitTries is the number of polls of a script for an answer. They take seconds, in which a
	// device's thread gets a CPU even on a busy host.
	awaitTries = 1 << 26
)

// window is a device of a bare guest from a driver's view.
type window struct {
	*script
	slot int
}

func (s *script) device(slot int) window { return window{s, slot} }

func (w window) at(reg uint64) uint64       { return boot.MMIOAddr(w.slot) + reg }
func (w window) write(reg uint64, v uint32) { w.op(opStore32, w.at(reg), uint64(v)) }
func (w window) read(reg uint64)            { w.op(opLoad32, w.at(reg), 0) }

// begin resets the device and negotiates.
func (w window) begin(features uint64) {
	w.write(regStatus, 0)
	w.write(regStatus, 1)
	w.write(regStatus, 3)
	for i := range uint32(2) {
		w.write(regDriverFeaturesSel, i)
		w.write(regDriverFeatures, uint32(features>>(32*i)))
	}
	w.write(regStatus, statusStarted)
}

// ring is a virtqueue in a bare guest's memory.
type ring struct {
	window
	q                 int
	size              uint32
	desc, avail, used uint64
}

// ring returns queue q at its usual place, not programmed yet.
func (w window) ring(q int, size uint32) ring {
	at := bareRings + uint64(w.slot)<<18 + uint64(q)<<16
	return ring{w, q, size, at, at + 0x4000, at + 0x8000}
}

// tell programs the queue.
func (r ring) tell() {
	r.write(regQueueSel, uint32(r.q))
	r.write(regQueueSize, r.size)
	for _, a := range []struct{ reg, addr uint64 }{{regQueueDesc, r.desc}, {regQueueDriver, r.avail}, {regQueueDevice, r.used}} {
		r.write(a.reg, uint32(a.addr))
		r.write(a.reg+4, uint32(a.addr>>32))
	}
	r.write(regQueueReady, 1)
}

// clear empties the rings, for a new start.
func (r ring) clear() {
	r.op(opStore64, r.avail, 0)
	r.op(opStore64, r.used, 0)
}

func (r ring) put(i int, addr uint64, n uint32, flags, next uint16) {
	r.putAt(r.desc, i, addr, n, flags, next)
}

// putAt writes a descriptor of any table.
func (r ring) putAt(table uint64, i int, addr uint64, n uint32, flags, next uint16) {
	r.op(opStore64, table+uint64(16*i), addr)
	r.op(opStore64, table+uint64(16*i)+8, uint64(n)|uint64(flags)<<32|uint64(next)<<48)
}

// offer makes chain head available as the entry before idx.
func (r ring) offer(head, idx uint16) {
	r.op(opStore16, r.avail+4+2*uint64((uint32(idx)-1)%r.size), uint64(head))
	r.op(opStore16, r.avail+2, uint64(idx))
}

func (r ring) kick() { r.write(regQueueNotify, uint32(r.q)) }

// awaitUsed waits until the device has used its first chain.
func (r ring) awaitUsed() { r.repeat(opAwaitBit, awaitTries, r.used, 0xffff0000, 0) }

// awaitAll waits until the device has used all offered chains.
func (r ring) awaitAll() { r.repeat(opAwaitEqual, awaitTries, r.used+2, r.avail+2, 0) }

func (w window) awaitBroken() { w.repeat(opAwaitBit, awaitTries, w.at(regStatus), statusNeedsReset, 0) }
