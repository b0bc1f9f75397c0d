package vmmctl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Segments travel as a table, not as JSON: a child may have some hundreds of them,
// a disk thousands, and a VMM that decodes them is waited for. A small table is in
// the message. A larger one is in a sealed memory file, the message's last
// descriptor, since a message has its bounds.
const (
	segmentSize = 28
	// maxInline is the largest table within a message, in bytes; JSON makes it a third larger.
	maxInline = 24 << 10
	// maxTable bounds a table, in bytes: some 150000 segments.
	maxTable = 4 << 20
	noFile   = ^uint32(0)
)

// segmentSpec is a segment on its way: its file is an index among descriptors of
// the message, -1 for zero pages.
type segmentSpec struct {
	File                       int
	FileOffset, Offset, Length int64
}

// tableRef says where a message's table is.
type tableRef struct {
	Table     []byte `json:"table,omitempty"`
	TableFile bool   `json:"table_file,omitempty"` // it is in the last descriptor
}

// pack puts lists of segments, one behind the other, into the table. The caller
// closes what it added to files once the message is sent.
func (t *tableRef) pack(files []*os.File, lists ...[]segmentSpec) (_ []*os.File, close func(), err error) {
	var b []byte
	for _, list := range lists {
		for _, s := range list {
			b = s.append(b)
		}
	}
	if len(b) <= maxInline {
		t.Table = b
		return files, func() {}, nil
	}
	f, err := sealed(b)
	if err != nil {
		return files, nil, fmt.Errorf("make table of %d segments: %w", len(b)/segmentSize, err)
	}
	t.TableFile = true
	return append(files, f), func() { f.Close() }, nil
}

func (s segmentSpec) append(b []byte) []byte {
	file := noFile
	if s.File >= 0 {
		file = uint32(s.File)
	}
	b = binary.LittleEndian.AppendUint32(b, file)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.FileOffset))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Offset))
	return binary.LittleEndian.AppendUint64(b, uint64(s.Length))
}

const allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// sealed is a memory file that nobody can change.
func sealed(b []byte) (*os.File, error) {
	if len(b) > maxTable {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", errLimit, len(b), maxTable)
	}
	fd, err := unix.MemfdCreate("forkd-segments", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "segments")
	if _, err = f.Write(b); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, allSeals)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// table is a received one; next takes segments off it.
type table struct{ rest []byte }

// open reads the table, and takes its descriptor off files if it has one.
func (t *tableRef) open(files []*os.File) (*table, []*os.File, error) {
	b := t.Table
	if t.TableFile {
		if len(files) == 0 {
			return nil, files, errFiles
		}
		last := files[len(files)-1]
		files = files[:len(files)-1]
		defer last.Close()
		var err error
		if b, err = readSealed(last); err != nil {
			return nil, files, fmt.Errorf("read the message's table: %w", err)
		}
	}
	if len(b)%segmentSize != 0 {
		return nil, files, errors.New("the message's table is cut short")
	}
	return &table{b}, files, nil
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

// next takes the next n segments.
func (t *table) next(n int) ([]segmentSpec, error) {
	if n < 0 || n > len(t.rest)/segmentSize {
		return nil, fmt.Errorf("the message's table has %d segments, want %d more", len(t.rest)/segmentSize, n)
	}
	out := make([]segmentSpec, 0, n)
	for range n {
		s := segmentSpec{
			File: -1, FileOffset: int64(binary.LittleEndian.Uint64(t.rest[4:])),
			Offset: int64(binary.LittleEndian.Uint64(t.rest[12:])), Length: int64(binary.LittleEndian.Uint64(t.rest[20:])),
		}
		if file := binary.LittleEndian.Uint32(t.rest); file != noFile {
			s.File = int(file)
		}
		out, t.rest = append(out, s), t.rest[segmentSize:]
	}
	return out, nil
}

// specs numbers the files of segments in the order in which they first come; the
// segments without one are zero pages.
func specs(segments []Segment) (out []segmentSpec, files []*os.File) {
	index := map[*os.File]int{}
	out = make([]segmentSpec, 0, len(segments))
	for _, s := range segments {
		spec := segmentSpec{File: -1, FileOffset: s.FileOffset, Offset: s.Offset, Length: s.Length}
		if s.File != nil {
			i, known := index[s.File]
			if !known {
				i = len(files)
				index[s.File] = i
				files = append(files, s.File)
			}
			spec.File = i
		}
		out = append(out, spec)
	}
	return out, files
}
