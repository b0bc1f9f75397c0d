package layer

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// DataFrom adds n bytes of src, from at on, as content at off. From a file the
// bytes are copied within the kernel and not looked at: only its holes become
// zero runs, and its position is moved. If the writer digests, or src is no
// file, they are read, and zeros are found as Data finds them.
func (w *Writer) DataFrom(off, n int64, src io.ReaderAt, at int64) error {
	return w.do(off, n, func() error {
		if f, ok := src.(*os.File); ok && w.sum == nil {
			return w.fromFile(off, n, f, at)
		}
		return w.pieces(n, src, at, func(done int64, p []byte) error { return w.split(off+done, p) })
	})
}

// pieces reads n bytes and hands them on in whole blocks.
func (w *Writer) pieces(n int64, src io.ReaderAt, at int64, each func(done int64, p []byte) error) error {
	buf := make([]byte, min(n, bufferBytes))
	for done := int64(0); done < n; done += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), n-done)]
		if got, err := src.ReadAt(buf, at+done); got < len(buf) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("read %d bytes at %d: %w", len(buf), at+done, err)
		}
		if err := each(done, buf); err != nil {
			return err
		}
	}
	return nil
}

// fromFile turns the holes of a file into zero runs and stores the rest.
func (w *Writer) fromFile(off, n int64, f *os.File, at int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Mode().IsRegular() && at > st.Size()-n {
		return fmt.Errorf("read %d bytes at %d of %s, which has %d: %w", n, at, f.Name(), st.Size(), io.ErrUnexpectedEOF)
	}
	for done := int64(0); done < n; {
		length, hole, err := w.nextStretch(f, at+done, n-done)
		if err != nil {
			return err
		}
		if err := w.add(off+done, length, hole); err != nil {
			return err
		}
		if !hole {
			if err := w.appendFile(f, at+done, length); err != nil {
				return err
			}
		}
		done += length
	}
	return nil
}

// nextStretch is how far the hole or the data at the offset reaches.
func (w *Writer) nextStretch(f *os.File, at, n int64) (length int64, hole bool, err error) {
	if !w.splits() {
		return n, false, nil
	}
	return stretchOf(f, at, n)
}

// appendFile adds n bytes of a file to the content.
func (w *Writer) appendFile(f *os.File, at, n int64) error {
	if w.sum == nil {
		if err := w.flush(); err != nil {
			return err
		}
		done, err := w.copyRange(f, at, n)
		if err != nil {
			return err
		}
		at, n = at+done, n-done
	}
	return w.pieces(n, f, at, func(_ int64, p []byte) error { return w.append(p) })
}

// copyRange copies within the kernel, as far as it can. What is left, because
// the file systems do not get along, is to be read and written.
func (w *Writer) copyRange(f *os.File, at, n int64) (done int64, err error) {
	for done < n {
		piece := min(n-done, pieceBytes)
		if err := w.before(StepData, piece); err != nil {
			return done, err
		}
		from, to := at+done, w.end
		got, err := unix.CopyFileRange(int(f.Fd()), &from, int(w.dst.Fd()), &to, int(piece), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
			return done, nil
		case err != nil:
			return done, fmt.Errorf("copy %d bytes of %s at %d: %w", piece, f.Name(), at+done, err)
		case got == 0: // its end, which reading will find too and name
			return done, nil
		}
		done, w.end = done+int64(got), w.end+int64(got)
	}
	return done, nil
}
