package layer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
)

// ContentOffset is the offset of a layer's content in its file. Byte n of a base that was Placed is at
// ContentOffset+n.
const ContentOffset = headerSize

// Placed declares that the caller has already written the whole image into the file, from ContentOffset on. This
// saves a copy of a large base. The image may have holes and may end early. Only an empty base can be placed.
func (w *Writer) Placed() error {
	return w.do(0, w.spec.Size, func() error {
		switch {
		case !w.spec.Parent.IsZero() || len(w.runs) > 0:
			return errors.New("only the content of an empty base can be placed")
		case w.end != ContentOffset:
			return errors.New("it has content already")
		}
		if err := w.before(StepData, 0); err != nil {
			return err
		}
		w.end += w.spec.Size
		if err := w.dst.Truncate(w.end); err != nil {
			return err
		}
		w.next = w.spec.Size
		w.runs = append(w.runs, run{Length: w.spec.Size, FileOffset: ContentOffset})
		return nil
	})
}

// hole adds n zeros to the content as a hole, which takes no space in the file.
func (w *Writer) hole(n int64) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.end += n
	return nil
}

// appendSparse adds content, with blocks of zeros as holes.
func (w *Writer) appendSparse(p []byte) error {
	for len(p) > 0 {
		n, zero := stretch(p)
		var err error
		if zero {
			err = w.hole(int64(n))
		} else {
			err = w.append(p[:n])
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// appendRange adds n bytes of a file to the content, and keeps its holes.
func (w *Writer) appendRange(f *os.File, at, n int64) error {
	for n > 0 {
		length, hole, err := stretchOf(f, at, n)
		if err != nil {
			return err
		}
		if hole {
			err = w.hole(length)
		} else {
			err = w.appendFile(f, at, length)
		}
		if err != nil {
			return err
		}
		at, n = at+length, n-length
	}
	return nil
}

// DataOf returns the parts of a sparse file's first size bytes that may hold data, for Diff to read. They consist
// of whole blocks and ascend.
func DataOf(f *os.File, size int64) (data []extent.Extent, err error) {
	for at := int64(0); at < size; {
		n, hole, err := stretchOf(f, at, size-at)
		if err != nil {
			return nil, err
		}
		if !hole {
			data = append(data, extent.Extent{File: f, FileOffset: at, Offset: at, Length: n})
		}
		at += n
	}
	return data, nil
}

// isHole reports whether a range of a file is certainly a hole. It only looks for the next data: to find the end
// of data, a kernel may walk through all of it.
func isHole(f *os.File, at, n int64) bool {
	data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	return errors.Is(err, unix.ENXIO) || err == nil && data >= at+n
}

// stretchOf returns the length of the hole or data at the offset: at most n bytes, in whole blocks. A block with
// some data counts as data.
func stretchOf(f *os.File, at, n int64) (length int64, hole bool, err error) {
	data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // a hole up to the end of the file
		return n, true, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ESPIPE): // no support for holes
		return n, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("find data of %s at %d: %w", f.Name(), at, err)
	}
	if skip := (data - at) / BlockSize * BlockSize; skip > 0 {
		return min(skip, n), true, nil
	}
	end, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
	if err != nil {
		return 0, false, fmt.Errorf("find the hole of %s behind %d: %w", f.Name(), data, err)
	}
	return min((end-at+BlockSize-1)/BlockSize*BlockSize, n), false, nil
}
