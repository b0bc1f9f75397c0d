//go:build linux

package volumes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Fields of ext4's superblock (Linux, fs/ext4/ext4.h, struct ext4_super_block).
const (
	superAt     = 1024
	superBytes  = 1024
	atBlocks    = 0x04
	atBlockLog  = 0x18
	atMagic     = 0x38
	atBlocksHi  = 0x150
	superMagic  = 0xef53
	maxBlockLog = 6
)

var errNoExt4 = errors.New("the volume has no ext4 file system")

// readSuper returns the number of blocks of a device's file system, and the size of a block in bytes.
func readSuper(device string) (blocks, size int64, err error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	b := make([]byte, superBytes)
	if _, err := f.ReadAt(b, superAt); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, fmt.Errorf("read the superblock: %w", err)
	}
	return parseSuper(b)
}

func parseSuper(b []byte) (blocks, size int64, err error) {
	le := binary.LittleEndian
	if len(b) < superBytes || le.Uint16(b[atMagic:]) != superMagic {
		return 0, 0, errNoExt4
	}
	log := le.Uint32(b[atBlockLog:])
	if log > maxBlockLog {
		return 0, 0, fmt.Errorf("%w: its block size is 2^%d KiB", errNoExt4, log)
	}
	blocks = int64(uint64(le.Uint32(b[atBlocks:])) | uint64(le.Uint32(b[atBlocksHi:]))<<32&(1<<62-1))
	return blocks, 1024 << log, nil
}
