package volume

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/forkd/forkd/internal/store/overlay"
)

// blanks holds empty ext4 file systems, made with mke2fs (blank_test.go): the blocks that are not zero, each after
// its number. The guest grows the file system of a volume of another size at the first mount. Each has a journal, as a
// guest may be killed while it writes, and reserved descriptors for MaxBytes. Its root is a directory for every user.
//
//go:embed blank/*.gz
var blanks embed.FS

// blankSizes are the sizes of blanks in bytes, in ascending order.
var blankSizes = []int64{MinBytes, 1 << 30, 10 << 30}

func blankName(size int64) string { return fmt.Sprintf("blank/%dm.gz", size>>20) }

// Mkfs writes an empty file system to an empty overlay file of a disk of size bytes. It may be smaller than the disk.
func Mkfs(f *os.File, size int64) error {
	of := blankSizes[0]
	for _, s := range blankSizes {
		if s <= size {
			of = s
		}
	}
	b, err := blanks.ReadFile(blankName(of))
	if err != nil {
		return err
	}
	d, err := overlay.Open(f, size, nil)
	if err != nil {
		return err
	}
	if err := unpack(b, d); err != nil {
		return fmt.Errorf("write the blank file system: %w", err)
	}
	return d.Flush()
}

// unpack writes the blocks of a blank.
func unpack(b []byte, to io.WriterAt) error {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	var at [4]byte
	block := make([]byte, overlay.BlockSize)
	for {
		if _, err := io.ReadFull(z, at[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := io.ReadFull(z, block); err != nil {
			return err
		}
		if _, err := to.WriteAt(block, int64(binary.LittleEndian.Uint32(at[:]))*overlay.BlockSize); err != nil {
			return err
		}
	}
}
