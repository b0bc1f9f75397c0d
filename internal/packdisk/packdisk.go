// Package packdisk keeps a mostly empty disk as a small file: the runs that have
// data, one behind the other, and an index. An image holds its empty writable
// file system so: digests, transfers and stores then see 100 KiB and not 4 GiB of
// holes. The runs are page aligned, so the file is read in place, as the base of
// a disk (package cowdisk); nothing unpacks it. docs/formats/packed-disk.md. The
// trap: a file that was packed is never written again, others hold it open.
package packdisk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Version of the format.
const Version = 1

// MaxRuns bounds the index: all runs have to fit into one control message of a VMM.
const MaxRuns = 512

const (
	magic        = "forkdpck"
	blockSize    = 4096
	sectorSize   = 512
	maxSize      = 64 << 40
	entryBytes   = 16
	trailerBytes = 32
)

// ErrDamaged: a file is no packed disk, or not any more.
var ErrDamaged = errors.New("packed disk is damaged")

// Run is a part of the disk that has data, and where in the file that is. In bytes.
type Run struct {
	FileOffset, Offset, Length int64
}

// Pack writes the packed form of the disk in src, a sparse file, into the empty file dst.
func Pack(dst, src *os.File) error {
	st, err := src.Stat()
	if err != nil {
		return fmt.Errorf("pack disk: %w", err)
	}
	size := st.Size()
	if err := checkSize(size); err != nil {
		return fmt.Errorf("pack disk: %w", err)
	}
	runs, err := dataRuns(src, size)
	if err != nil {
		return fmt.Errorf("pack disk: find its data: %w", err)
	}
	at := int64(0)
	for _, r := range runs {
		if err := copyRun(dst, src, r); err != nil {
			return fmt.Errorf("pack disk: %w", err)
		}
		at = r.FileOffset + r.Length // only the disk's last run may be no whole blocks
	}
	if _, err := dst.WriteAt(index(size, runs), at); err != nil {
		return fmt.Errorf("pack disk: %w", err)
	}
	return nil
}

// dataRuns are the runs of a sparse file in whole blocks. Near ones are joined,
// the farther the more there are.
func dataRuns(f *os.File, size int64) ([]Run, error) {
	var all []Run
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= size {
			break
		}
		if err != nil {
			return nil, err
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		from, to := data/blockSize*blockSize, min((hole+blockSize-1)/blockSize*blockSize, size)
		all = append(all, Run{Offset: from, Length: to - from})
		at = to
	}
	const near = 16 * blockSize
	for gap := int64(near); ; gap *= 2 {
		runs := join(all, gap)
		if len(runs) <= MaxRuns {
			return runs, nil
		}
	}
}

func join(all []Run, gap int64) []Run {
	var runs []Run
	at := int64(0)
	for _, r := range all {
		if n := len(runs) - 1; n >= 0 && r.Offset-runs[n].Offset-runs[n].Length <= gap {
			runs[n].Length = r.Offset + r.Length - runs[n].Offset
		} else {
			runs = append(runs, r)
		}
	}
	for i := range runs {
		runs[i].FileOffset = at
		at += runs[i].Length
	}
	return runs
}

func copyRun(dst, src *os.File, r Run) error {
	_, err := io.Copy(io.NewOffsetWriter(dst, r.FileOffset), io.NewSectionReader(src, r.Offset, r.Length))
	return err
}

// index is what stands behind the data.
func index(size int64, runs []Run) []byte {
	var b []byte
	for _, r := range runs {
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Offset))
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Length))
	}
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(runs)))
	b = binary.LittleEndian.AppendUint64(b, uint64(size))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Read gives a packed disk's size and runs, ascending and without overlap.
func Read(f *os.File) (size int64, runs []Run, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, nil, fmt.Errorf("read packed disk: %w", err)
	}
	tail := make([]byte, min(st.Size(), trailerBytes+MaxRuns*entryBytes))
	if _, err := f.ReadAt(tail, st.Size()-int64(len(tail))); err != nil {
		return 0, nil, fmt.Errorf("read packed disk: %w", err)
	}
	return parse(tail, st.Size())
}

// parse reads the end of a file of length bytes.
func parse(tail []byte, length int64) (int64, []Run, error) {
	if len(tail) < trailerBytes {
		return 0, nil, fmt.Errorf("%w: it has no trailer", ErrDamaged)
	}
	t := tail[len(tail)-trailerBytes:]
	if !bytes.Equal(t[:8], []byte(magic)) {
		return 0, nil, fmt.Errorf("%w: it has no trailer", ErrDamaged)
	}
	if v := binary.LittleEndian.Uint32(t[8:]); v != Version {
		return 0, nil, fmt.Errorf("%w: it has version %d, this forkd reads %d: build the image again", ErrDamaged, v, Version)
	}
	n := int64(binary.LittleEndian.Uint32(t[12:]))
	if n > MaxRuns || trailerBytes+n*entryBytes > int64(len(tail)) {
		return 0, nil, fmt.Errorf("%w: it has %d runs", ErrDamaged, n)
	}
	b := tail[int64(len(tail))-trailerBytes-n*entryBytes:]
	if crc32.Checksum(b[:len(b)-4], castagnoli) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
		return 0, nil, fmt.Errorf("%w: its index has another checksum", ErrDamaged)
	}
	size := int64(binary.LittleEndian.Uint64(t[16:]))
	runs, err := parseRuns(b[:n*entryBytes], size, length-int64(len(b)))
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return size, runs, nil
}

// parseRuns checks the runs of a disk against the room that their data has.
func parseRuns(b []byte, size, room int64) (runs []Run, err error) {
	if err := checkSize(size); err != nil {
		return nil, err
	}
	end, at := int64(0), int64(0)
	for ; len(b) > 0; b = b[entryBytes:] {
		r := Run{FileOffset: at, Offset: int64(binary.LittleEndian.Uint64(b)), Length: int64(binary.LittleEndian.Uint64(b[8:]))}
		if r.Offset < end || r.Offset%blockSize != 0 || r.Length <= 0 || r.Length > size || r.Offset > size-r.Length {
			return nil, fmt.Errorf("run of %d bytes at %d", r.Length, r.Offset)
		}
		if r.Length%blockSize != 0 && r.Offset+r.Length != size {
			return nil, fmt.Errorf("run of %d bytes at %d is no whole blocks", r.Length, r.Offset)
		}
		if r.Length > room-at {
			return nil, fmt.Errorf("run of %d bytes at %d is cut", r.Length, r.Offset)
		}
		end = r.Offset + r.Length
		at += r.Length
		runs = append(runs, r)
	}
	return runs, nil
}

func checkSize(size int64) error {
	if size <= 0 || size > maxSize || size%sectorSize != 0 {
		return fmt.Errorf("disk of %d bytes: want whole sectors of %d, at most %d bytes", size, sectorSize, int64(maxSize))
	}
	return nil
}
