// Package crc32c is the checksum of VM state and of disks (CRC-32C, Castagnoli),
// as hash/crc32 computes it, in plain Go. It is for the VMM, whose start a fork
// may wait for: hash/crc32 fills tables for the CPU's instruction by running that
// instruction over megabytes, 16 ms of each process's start where it is emulated.
// The trap: it is slower than hash/crc32 for anything longer than a VM's state.
package crc32c

import (
	"encoding/binary"
	"sync"
)

// polynomial is Castagnoli's, bit-reversed.
const polynomial = 0x82f63b78

// tables are for eight bytes at once: table k is of a byte with k bytes behind it.
var tables = sync.OnceValue(func() *[8][256]uint32 {
	t := new([8][256]uint32)
	for i := range t[0] {
		c := uint32(i)
		for range 8 {
			c = c>>1 ^ polynomial&-(c&1)
		}
		t[0][i] = c
	}
	for k := 1; k < len(t); k++ {
		for i, c := range t[k-1] {
			t[k][i] = t[0][byte(c)] ^ c>>8
		}
	}
	return t
})

// Checksum of b.
func Checksum(b []byte) uint32 { return Update(0, b) }

// Update is the checksum of what sum is of, followed by b.
func Update(sum uint32, b []byte) uint32 {
	t := tables()
	c := ^sum
	for ; len(b) >= 8; b = b[8:] {
		v := binary.LittleEndian.Uint64(b) ^ uint64(c)
		c = t[7][byte(v)] ^ t[6][byte(v>>8)] ^ t[5][byte(v>>16)] ^ t[4][byte(v>>24)] ^
			t[3][byte(v>>32)] ^ t[2][byte(v>>40)] ^ t[1][byte(v>>48)] ^ t[0][byte(v>>56)]
	}
	for _, x := range b {
		c = t[0][byte(c)^x] ^ c>>8
	}
	return ^c
}
