package bzimage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/leaf/ctxio"
	"github.com/ulikunitz/xz/lzma"
)

// Kernels are packed by xz with the x86 branch filter, which makes jump targets absolute, to let
// them repeat. The xz library supports only LZMA2, so this file reads the container of the one
// block, and reverses the filter.

const (
	filterX86   = 0x04
	filterLZMA2 = 0x21
)

var errXZ = errors.New("damaged xz header")

// openXZ opens a stream of one block of want unpacked bytes. It does not check the checksums. The
// library's reader of the container would, but it allocates a dictionary of the size in the block's
// header: up to 4 GiB.
func openXZ(ctx context.Context, packed []byte, want int64) (io.Reader, error) {
	b, err := parseXZ(packed)
	if err != nil {
		return nil, err
	}
	r, err := lzma.Reader2Config{DictCap: clampDict(b.dict, want)}.NewReader2(bytes.NewReader(packed[b.data:]))
	if err != nil {
		return nil, err
	}
	if !b.x86 {
		return r, nil
	}
	out, err := io.ReadAll(io.LimitReader(ctxio.Reader(ctx, r), want+1))
	if err != nil {
		return nil, err
	}
	undoX86(out)
	return bytes.NewReader(out), nil
}

// clampDict limits the dictionary to the content's size: a false header must not cost memory.
func clampDict(dict uint64, want int64) int {
	return int(max(min(dict, uint64(want)), lzma.MinDictCap))
}

// xzBlock holds the header of the first block.
type xzBlock struct {
	x86  bool
	dict uint64
	data int // offset of the packed data
}

// parseXZ reads the stream header (12 bytes) and the first block's header: size, flags, optional
// sizes, filters (The .xz File Format 1.2, sections 2.1.1 and 3.1).
func parseXZ(b []byte) (xzBlock, error) {
	const streamHeader = 12
	if len(b) < streamHeader+8 || b[streamHeader] == 0 {
		return xzBlock{}, errXZ
	}
	end := streamHeader + (int(b[streamHeader])+1)*4
	if end > len(b) {
		return xzBlock{}, errXZ
	}
	block := xzBlock{data: end}
	flags := b[streamHeader+1]
	rest := b[streamHeader+2 : end-4] // the checksum is at the end
	for _, present := range []byte{0x40, 0x80} {
		if flags&present != 0 {
			if _, err := takeInt(&rest); err != nil {
				return xzBlock{}, err
			}
		}
	}
	for range int(flags&3) + 1 {
		if err := block.takeFilter(&rest); err != nil {
			return xzBlock{}, err
		}
	}
	if block.dict == 0 {
		return xzBlock{}, errXZ
	}
	return block, nil
}

func (x *xzBlock) takeFilter(rest *[]byte) error {
	id, err := takeInt(rest)
	if err != nil {
		return err
	}
	size, err := takeInt(rest)
	if err != nil || size > uint64(len(*rest)) {
		return errXZ
	}
	props := (*rest)[:size]
	*rest = (*rest)[size:]
	switch {
	case id == filterX86 && size == 0:
		x.x86 = true
	case id == filterLZMA2 && size == 1 && props[0] <= 40:
		x.dict = uint64(2|props[0]&1) << (props[0]/2 + 11)
	default:
		return fmt.Errorf("unknown xz filter %#x", id)
	}
	return nil
}

// takeInt reads a number of 7 bits a byte, lowest first.
func takeInt(b *[]byte) (uint64, error) {
	n, size := binary.Uvarint(*b)
	if size <= 0 {
		return 0, errXZ
	}
	*b = (*b)[size:]
	return n, nil
}

// sign reports whether a byte can be the highest of a near target: all bits alike.
func sign(b byte) bool { return b == 0 || b == 0xff }

// undoX86 makes the targets of near calls and jumps (e8, e9) relative again, in place. The packer
// skips bytes that do not look like a target. Whether it did depends on the opcodes within the
// three bytes before, which seen records: bit n is set if the byte n+1 places before was an opcode
// left alone.
func undoX86(b []byte) {
	seen, last := uint32(0), -1
	for i := 0; i+5 <= len(b); i++ {
		if b[i]&0xfe != 0xe8 {
			continue
		}
		gap := i - last
		last = i
		if gap > 3 {
			seen = 0
		} else {
			seen = seen << (gap - 1) & 7
		}
		if inOperand(seen, b[i:]) || !sign(b[i+4]) {
			seen = seen<<1 | 1
			continue
		}
		binary.LittleEndian.PutUint32(b[i+1:], relative(binary.LittleEndian.Uint32(b[i+1:]), uint32(i+5), seen))
		i += 4
	}
}

// highBit returns the number of the highest bit set, from 1, or 0 if no bit is set.
func highBit(seen uint32) uint32 {
	switch {
	case seen >= 4:
		return 3
	case seen >= 2:
		return 2
	}
	return seen
}

// inOperand reports whether an opcode is taken as part of an earlier one's operand.
func inOperand(seen uint32, op []byte) bool {
	switch seen {
	case 0:
		return false
	case 1, 2, 4:
		return sign(op[4-highBit(seen)])
	}
	return true // two earlier ones: never converted
}

// relative turns an absolute target back, as often as the packer did.
func relative(target, next, seen uint32) uint32 {
	for {
		v := target - next
		if seen != 0 {
			bits := highBit(seen) * 8
			if sign(byte(v >> (24 - bits))) {
				target = v ^ (1<<(32-bits) - 1)
				continue
			}
		}
		// 25 bits, the highest of which is the sign.
		return uint32(int32(v<<7) >> 7)
	}
}
