package partial

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/sys/durable"
)

// bits is a set of frames.
type bits []byte

func newBits(n int) bits { return make(bits, (n+7)/8) }

func (b bits) has(i int) bool { return b[i/8]&(1<<(i%8)) != 0 }
func (b bits) set(i int)      { b[i/8] |= 1 << (i % 8) }
func (b bits) drop(i int)     { b[i/8] &^= 1 << (i % 8) }

// encodeBits adds a checksum.
func encodeBits(b bits) []byte {
	return binary.LittleEndian.AppendUint32(append([]byte(nil), b...), crc32.ChecksumIEEE(b))
}

// decodeBits returns the set of n frames, or an empty set if the bytes are damaged: the frames are fetched again.
func decodeBits(raw []byte, n int) bits {
	have := newBits(n)
	if len(raw) != len(have)+4 || crc32.ChecksumIEEE(raw[:len(have)]) != binary.LittleEndian.Uint32(raw[len(have):]) {
		return have
	}
	copy(have, raw)
	for i := n; i < 8*len(have); i++ {
		have.drop(i)
	}
	return have
}

// readBits reads the durable set of a folder.
func readBits(dir string, n int) (bits, error) {
	raw, err := durable.ReadFile(filepath.Join(dir, bitsFile), hub.MaxContent/hub.ChunkBytes/8+64)
	if errors.Is(err, fs.ErrNotExist) {
		return newBits(n), nil
	}
	if err != nil {
		return nil, err
	}
	return decodeBits(raw, n), nil
}

// WriteOrder records the order in which a file's bytes are first used, as offsets of the file. The file is fetched in
// this order, and then from its beginning.
func WriteOrder(dir string, offsets []int64) error {
	seen := map[uint32]bool{}
	var b []byte
	for _, at := range offsets {
		if chunk := uint32(at / hub.ChunkBytes); !seen[chunk] {
			seen[chunk] = true
			b = binary.LittleEndian.AppendUint32(b, chunk)
		}
	}
	return durable.Replace(filepath.Join(dir, orderFile), b)
}

// readOrder reads the chunks of WriteOrder. An order is advice: bad values are dropped.
func readOrder(dir string) []uint32 {
	b, err := durable.ReadFile(filepath.Join(dir, orderFile), maxOrder)
	if err != nil {
		return nil
	}
	var out []uint32
	for ; len(b) >= 4; b = b[4:] {
		out = append(out, binary.LittleEndian.Uint32(b))
	}
	return out
}
