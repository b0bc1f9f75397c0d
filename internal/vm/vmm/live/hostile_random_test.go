package live

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/forkd/forkd/internal/vm/boot"
)

// A random driver starts with a properly set-up device and then takes random steps, with a
// preference for values at the limits.

// randomSeeds are fixed, so that a failure is reproducible: it names its seed.
var randomSeeds = []uint64{1, 2, 3, 4, 5, 6, 7, 8}

type randomDriver struct {
	*script
	rnd *rand.Rand
}

// pick returns one of the values.
func pick[T any](d randomDriver, values ...T) T { return values[d.rnd.IntN(len(values))] }

// address returns any address, often in memory.
func (d randomDriver) address() uint64 {
	inside := uint64(bareRings + d.rnd.IntN(bareResults-bareRings))
	return pick(d, inside, inside&^15, inside&^0xfff, bareBuffers, bareEnd-uint64(d.rnd.IntN(64)), bareEnd, boot.MMIOAddr(d.rnd.IntN(6)),
		bareRings+uint64(d.rnd.IntN(4))<<18+uint64(d.rnd.IntN(3))<<16, ^uint64(0)-uint64(d.rnd.IntN(32)), d.rnd.Uint64(), 0)
}

func (d randomDriver) length() uint32 {
	return pick(d, 0, 1, 4, 16, 32, 44, 100, 512, 513, 4096, 1<<20, 64<<20, 0x7fffffff, 0xffffffff, d.rnd.Uint32())
}

// rings returns the queues of a device with their sizes.
func (d randomDriver) rings(slot int) []ring {
	w := d.device(slot)
	switch slot {
	case slotVsock:
		return []ring{w.ring(0, 128), w.ring(1, 128), w.ring(2, 8)}
	case slotRNG:
		return []ring{w.ring(0, 8)}
	case slotNet:
		return []ring{w.ring(0, 256), w.ring(1, 256), w.ring(2, 64)}
	default:
		return []ring{w.ring(0, 128)}
	}
}

// setUp starts a device like a correct driver, with some chains in its queues.
func (d randomDriver) setUp(slot int) {
	w := d.device(slot)
	features := featVersion1 | pick[uint64](d, 0, featIndirect, 1<<29, featIndirect|1<<29)
	if slot == slotNet {
		features |= pick[uint64](d, 0, 1<<15, 0x83b9ab) // merged buffers, all
	}
	w.begin(features)
	for q, r := range d.rings(slot) {
		r.clear()
		// Buffers that the device writes: receive buffers, entropy, the answers of a disk.
		for i := range min(int(r.size), 8) {
			r.put(i, bareBuffers+uint64(i)<<14, pick[uint32](d, 16, 512, 4096), pick[uint16](d, flagWrite, flagWrite, 0), 0)
			r.op(opStore16, r.avail+4+uint64(2*i), uint64(i))
		}
		if slot <= slotDisk {
			r.request(pick[uint32](d, blkIn, blkOut, blkFlush, blkGetID, blkDiscard), uint64(d.rnd.IntN(4000)), pick[uint32](d, 512, 4096, 65536), pick[uint16](d, 0, flagWrite))
		}
		if slot == slotVsock && q == 1 {
			for i := range 8 {
				d.packet(bareBuffers + 0x100000 + uint64(i)*64)
				r.put(i, bareBuffers+0x100000+uint64(i)*64, pick[uint32](d, 44, 60, 4096), 0, 0)
			}
		}
		r.tell()
		r.op(opStore16, r.avail+2, uint64(d.rnd.IntN(8)))
	}
	w.write(regStatus, statusDriverOK)
}

// packet writes a socket packet, which is valid about half of the time.
func (d randomDriver) packet(at uint64) {
	d.op(opStore64, at, pick[uint64](d, 3, 3, 3, 2, d.rnd.Uint64()))
	d.op(opStore64, at+8, pick[uint64](d, 2, 2, 2, 3, d.rnd.Uint64()))
	d.op(opStore64, at+16, pick[uint64](d, 5<<32|7, d.rnd.Uint64()))
	d.op(opStore64, at+24, uint64(pick(d, 0, 0, 16, d.length()))|uint64(pick[uint16](d, 1, 1, 1, 2, 0xffff))<<32|uint64(d.rnd.IntN(9))<<48)
	d.op(opStore64, at+32, uint64(d.rnd.IntN(4))|uint64(pick(d, 0, 4096, 0xffffffff, d.rnd.Uint32()))<<32)
	d.op(opStore32, at+40, uint64(d.rnd.Uint32()))
}

// step takes one step, on the driver's own queues or on any register.
func (d randomDriver) step() {
	slot := d.rnd.IntN(slotNet + 1)
	w := d.device(slot)
	r := pick(d, d.rings(slot)...)
	switch n := d.rnd.IntN(100); {
	case n < 4:
		d.setUp(slot)
	case n < 30:
		r.kick()
	case n < 45:
		r.put(d.rnd.IntN(int(r.size)), d.address(), d.length(), uint16(d.rnd.IntN(8)), uint16(d.rnd.IntN(int(r.size)+1)))
	case n < 55:
		d.packet(bareBuffers + 0x100000 + uint64(d.rnd.IntN(8))*64)
	case n < 65:
		d.op(opAdd16, r.avail+2, uint64(pick(d, 1, 1, 2, 3, d.rnd.IntN(0x10000))))
	case n < 70:
		d.op(opStore16, r.avail+4+2*uint64(d.rnd.IntN(int(r.size))), uint64(d.rnd.IntN(int(r.size)+2)))
	case n < 75:
		d.op(opStore32, r.used, uint64(d.rnd.Uint32())) // the device's own words
	case n < 80:
		w.write(regStatus, pick[uint32](d, 0, 1, 3, 11, 15, 64, 128, 0xffffffff))
	case n < 85:
		w.write(regQueueSel, pick[uint32](d, 0, 1, 2, 3, 0xffffffff))
		w.write(regQueueReady, pick[uint32](d, 0, 1, 2))
	case n < 92:
		d.op(pick(d, opStore8, opStore16, opStore32, opStore64), boot.MMIOAddr(slot)+uint64(d.rnd.IntN(0x140)), d.rnd.Uint64())
	case n < 96:
		w.write(pick[uint64](d, regQueueSize, regQueueDesc, regQueueDesc+4, regQueueDriver, regQueueDevice, regInterruptACK), uint32(d.address()))
	default:
		d.repeat(opSpin, uint32(d.rnd.IntN(3000)), 0, 0, 0)
	}
}

func TestRandomDrivers(t *testing.T) {
	for _, seed := range randomSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			d := randomDriver{newScript(), rand.New(rand.NewPCG(seed, 0))}
			for slot := range slotNet + 1 {
				d.setUp(slot)
			}
			from := d.here()
			for range 1000 {
				d.step()
			}
			d.loop(from, 2)
			d.op(opStore32, bareMark, 1)
			// It continues while it is paused, saved and restored.
			again := d.here()
			for range 500 {
				d.step()
			}
			d.op(opAdd16, bareBeat, 1)
			d.loop(again, 0)
			before := measure()
			v := bootBare(t, d.script, refusing)
			v.waitMark()
			v.checkSound()
			before.check(t)
		})
	}
}
