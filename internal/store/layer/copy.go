package layer

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pieces reads n bytes and passes them on in whole blocks.
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

// appendFile adds n bytes of a file to the content.
func (w *Writer) appendFile(f *os.File, at, n int64) error {
	if err := w.flush(); err != nil {
		return err
	}
	done, err := w.copyRange(f, at, n)
	if err != nil {
		return err
	}
	return w.pieces(n-done, f, at+done, func(_ int64, p []byte) error { return w.append(p) })
}

// copyRange copies within the kernel as far as it can. If the file systems do not support it, the rest has to be
// read and written.
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
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS),
			errors.Is(err, unix.EOPNOTSUPP):
			return done, nil
		case err != nil:
			return done, fmt.Errorf("copy %d bytes of %s at %d: %w", piece, f.Name(), at+done, err)
		case got == 0: // end of file; reading the rest will report it
			return done, nil
		}
		done, w.end = done+int64(got), w.end+int64(got)
	}
	return done, nil
}
