package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// Extents are encoded as a table instead of JSON: a child may have some hundreds of them, a disk
// thousands, and callers wait for the VMM to decode them. A small table is in the message. A larger
// one is in a sealed memory file, the message's last descriptor, since messages are limited in
// size.
const (
	extentBytes = 28
	// maxInline is the largest table within a message, in bytes. JSON makes it a third larger.
	maxInline = 24 << 10
	// maxTable limits a table, in bytes: some 150000 extents.
	maxTable = 4 << 20
)

// appendExtent appends an extent to a table. r names its file.
func appendExtent(b []byte, s extent.Extent, r fileRef) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(r))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.FileOffset))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Offset))
	return binary.LittleEndian.AppendUint64(b, uint64(s.Length))
}

// readExtent reads the first extent of a table, without its file.
func readExtent(b []byte) (s extent.Extent, r fileRef) {
	return extent.Extent{
		FileOffset: int64(binary.LittleEndian.Uint64(b[4:])),
		Offset:     int64(binary.LittleEndian.Uint64(b[12:])),
		Length:     int64(binary.LittleEndian.Uint64(b[20:])),
	}, fileRef(binary.LittleEndian.Uint32(b))
}

const allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// sealed returns an immutable memory file with content b.
func sealed(b []byte) (*os.File, error) {
	if len(b) > maxTable {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrLimit, len(b), maxTable)
	}
	fd, err := unix.MemfdCreate("forkd-extents", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "extents")
	if _, err = f.Write(b); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, allSeals)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openTable reads a message's table. It removes the table's descriptor, if any, from files.
func openTable(m Message, files []*os.File) (table []byte, rest []*os.File, err error) {
	table = m.Table
	if m.TableFile {
		if len(files) == 0 {
			return nil, files, ErrFiles
		}
		last := files[len(files)-1]
		files = files[:len(files)-1]
		defer last.Close()
		if table, err = readSealed(last); err != nil {
			return nil, files, fmt.Errorf("read the message's table: %w", err)
		}
	}
	if len(table)%extentBytes != 0 {
		return nil, files, errors.New("the message's table is cut short")
	}
	return table, files, nil
}

func readSealed(f *os.File) ([]byte, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&allSeals != allSeals {
		return nil, errors.New("it is in no sealed memory file")
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxTable {
		return nil, fmt.Errorf("it has %d bytes, want at most %d", st.Size(), maxTable)
	}
	b := make([]byte, st.Size())
	_, err = f.ReadAt(b, 0)
	return b, err
}
