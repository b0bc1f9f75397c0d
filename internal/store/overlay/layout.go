package overlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Version is the version of the overlay file's format, docs/inside/formats/overlay.md.
const Version = 2

const magic = "forkdown"

// ErrDamaged: a file is not, or no longer, the overlay file of such a disk.
var ErrDamaged = errors.New("overlay file is damaged")

// layout computes the positions in the overlay file. Blocks are at their own offset.
type layout struct {
	size   int64
	blocks int64
}

func layoutOf(size int64) layout {
	return layout{size: size, blocks: (size + BlockSize - 1) / BlockSize}
}

func (l layout) mapAt() int64     { return l.blocks * BlockSize }
func (l layout) trailerAt() int64 { return l.mapAt() + chunksOf(l.blocks)*chunkBytes }
func (l layout) total() int64     { return l.trailerAt() + BlockSize }

// trailer returns the file's last block.
func (l layout) trailer() []byte {
	b := make([]byte, BlockSize)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], Version)
	binary.LittleEndian.PutUint32(b[12:], BlockSize)
	binary.LittleEndian.PutUint64(b[16:], uint64(l.size))
	binary.LittleEndian.PutUint64(b[24:], uint64(l.mapAt()))
	binary.LittleEndian.PutUint32(b[32:], chunkBytes)
	binary.LittleEndian.PutUint32(b[36:], crc32.ChecksumIEEE(b[:36]))
	return b
}

// parseTrailer returns the size of the disk for an overlay file of length bytes.
func parseTrailer(b []byte, length int64) (int64, error) {
	if len(b) != BlockSize || !bytes.Equal(b[:8], []byte(magic)) {
		return 0, fmt.Errorf("%w: it has no trailer", ErrDamaged)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != Version {
		return 0, fmt.Errorf("%w: it has version %d, want %d", ErrDamaged, v, Version)
	}
	if binary.LittleEndian.Uint32(b[36:]) != crc32.ChecksumIEEE(b[:36]) {
		return 0, fmt.Errorf("%w: its trailer has another checksum", ErrDamaged)
	}
	size := int64(binary.LittleEndian.Uint64(b[16:]))
	if err := CheckSize(size); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	l := layoutOf(size)
	if !bytes.Equal(b, l.trailer()) {
		return 0, fmt.Errorf("%w: its trailer says another layout", ErrDamaged)
	}
	if length != l.total() {
		return 0, fmt.Errorf("%w: it has %d bytes, want %d", ErrDamaged, length, l.total())
	}
	return size, nil
}

// check reads the trailer of a file of length bytes. A file without a trailer counts as empty: the trailer is
// durable before the first bit is written.
func (l layout) check(f overlayFile, length int64) (formatted bool, err error) {
	if length < BlockSize {
		return false, fmt.Errorf("%w: it has %d bytes", ErrDamaged, length)
	}
	b := make([]byte, BlockSize)
	if err := f.readAll([][]byte{b}, length-BlockSize); err != nil {
		return false, fmt.Errorf("read the overlay file's trailer: %w", err)
	}
	if length == l.total() && bytes.Equal(b, make([]byte, BlockSize)) {
		return false, nil
	}
	size, err := parseTrailer(b, length)
	if err == nil && size != l.size {
		err = fmt.Errorf("%w: it belongs to a disk of %d bytes, this has %d", ErrDamaged, size, l.size)
	}
	return err == nil, err
}
