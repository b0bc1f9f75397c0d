package layer

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/forkd/forkd/internal/leaf/storeerr"
)

// Step is a step of writing, passed to Options.Before.
type Step string

// The steps in order. StepData occurs once for each piece of content.
const (
	StepData   Step = "data"
	StepIndex  Step = "index"
	StepHeader Step = "header"
	StepSync   Step = "sync"
)

// Options configures a Writer.
type Options struct {
	// Before is called before each step with the number of bytes that the step adds to the file. An error from it
	// ends the writing. May be nil.
	Before func(step Step, bytes int64) error
}

const (
	bufferBytes = 256 << 10 // size of a write of scattered pages
	pieceBytes  = 8 << 20   // most bytes between two checks of the free space
)

var (
	zeroBlock   = make([]byte, BlockSize)
	errFinished = errors.New("write layer: it is finished")
)

// Writer writes one layer: runs in ascending order, then Finish. After an error, all further calls return the
// same error, and the file is unusable. It is not safe for concurrent use.
type Writer struct {
	dst  *os.File
	spec Spec
	opt  Options
	runs []run
	next int64  // the next run begins here or later
	end  int64  // end of the content in the file
	buf  []byte // end of the content, not in the file yet
	err  error
}

// NewWriter begins a layer in an empty file. The caller closes and names the file. If the spec has no view, the
// layer's ID is its view.
func NewWriter(dst *os.File, spec Spec, opt Options) (*Writer, error) {
	if spec.View.IsZero() {
		spec.View = spec.ID
	}
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("write layer: %w", err)
	}
	st, err := dst.Stat()
	if err != nil {
		return nil, fmt.Errorf("write layer %s: %w", spec.ID, err)
	}
	if st.Size() != 0 {
		return nil, fmt.Errorf("write layer %s: %s is not empty", spec.ID, dst.Name())
	}
	return &Writer{dst: dst, spec: spec, opt: opt, end: headerSize, buf: make([]byte, 0, bufferBytes)}, nil
}

// Spec returns the layer's spec.
func (w *Writer) Spec() Spec { return w.spec }

// Data adds content at off. Blocks of zeros become zero runs until half of MaxRuns are used. After that, zeros
// are stored as data. So a layer of at most MaxRuns/2 separate stretches never has too many runs.
func (w *Writer) Data(off int64, p []byte) error {
	return w.do(off, int64(len(p)), func() error { return w.split(off, p) })
}

// Zero records n zero bytes at off. In a base, no entry is stored for them.
func (w *Writer) Zero(off, n int64) error {
	return w.do(off, n, func() error { return w.add(off, n, true) })
}

// do checks the position of the next content and keeps the first error.
func (w *Writer) do(off, n int64, f func() error) error {
	if w.err != nil {
		return w.err
	}
	var err error
	if off < w.next || n <= 0 || off > w.spec.Size-n || (off|n)%BlockSize != 0 {
		err = fmt.Errorf("%d bytes at %d, behind %d, in an image of %d: want whole blocks in rising order",
			n, off, w.next, w.spec.Size)
	} else {
		err = f()
	}
	return w.fail(err)
}

func (w *Writer) fail(err error) error {
	if err != nil {
		w.err = fmt.Errorf("write layer %s: %w", w.spec.ID, storeerr.NoSpace(err))
	}
	return w.err
}

// splits reports whether zeros within data still get their own runs.
func (w *Writer) splits() bool { return len(w.runs) < MaxRuns/2 }

func (w *Writer) split(off int64, p []byte) error {
	for len(p) > 0 {
		n, zero := len(p), false
		if w.splits() {
			n, zero = stretch(p)
		}
		if err := w.add(off, int64(n), zero); err != nil {
			return err
		}
		if !zero {
			if err := w.append(p[:n]); err != nil {
				return err
			}
		}
		off, p = off+int64(n), p[n:]
	}
	return nil
}

// stretch returns the length of the first blocks of p that are all zero or all non-zero.
func stretch(p []byte) (n int, zero bool) {
	zero = bytes.Equal(p[:BlockSize], zeroBlock)
	for n = BlockSize; n < len(p) && bytes.Equal(p[n:n+BlockSize], zeroBlock) == zero; n += BlockSize {
	}
	return n, zero
}

// add adds a run to the index. The content of a data run is appended next.
func (w *Writer) add(off, n int64, zero bool) error {
	w.next = off + n
	if zero && w.spec.Parent.IsZero() {
		return nil
	}
	r := run{Offset: off, Length: n, Zero: zero}
	if last := len(w.runs) - 1; last >= 0 && w.runs[last].touches(r) {
		w.runs[last].Length += n
		return nil
	}
	if len(w.runs) == MaxRuns {
		return fmt.Errorf("%w: %d already; join near ones, or compact the chain", ErrTooManyRuns, MaxRuns)
	}
	if !zero {
		r.FileOffset = w.end
	}
	w.runs = append(w.runs, r)
	return nil
}

// append adds content at the end.
func (w *Writer) append(p []byte) error {
	for len(p) > 0 {
		if len(w.buf) == 0 && len(p) >= bufferBytes {
			n := min(len(p), pieceBytes)
			if err := w.write(StepData, p[:n], w.end); err != nil {
				return err
			}
			w.end, p = w.end+int64(n), p[n:]
			continue
		}
		n := min(len(p), bufferBytes-len(w.buf))
		w.buf = append(w.buf, p[:n]...)
		w.end, p = w.end+int64(n), p[n:]
		if len(w.buf) == bufferBytes {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.write(StepData, w.buf, w.end-int64(len(w.buf)))
	w.buf = w.buf[:0]
	return err
}

func (w *Writer) write(step Step, p []byte, at int64) error {
	if err := w.before(step, int64(len(p))); err != nil {
		return err
	}
	_, err := w.dst.WriteAt(p, at)
	return err
}

func (w *Writer) before(step Step, n int64) error {
	if w.opt.Before == nil {
		return nil
	}
	return w.opt.Before(step, n)
}

// Finish writes the index and the header and makes the file durable. It does not hash the content; Layer.Digest
// does that later.
func (w *Writer) Finish() (Info, error) {
	if w.err != nil {
		return Info{}, w.err
	}
	info := Info{Spec: w.spec, DataBytes: w.end - headerSize, RunCount: len(w.runs)}
	index := encodeIndex(w.runs)
	header := encodeHeader(info, index)
	if err := w.fail(w.finish(header, index)); err != nil {
		return Info{}, err
	}
	w.err = errFinished
	return info, nil
}

func (w *Writer) finish(header, index []byte) error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.write(StepIndex, index, w.end); err != nil {
		return err
	}
	// The header comes last: without it the file is not a layer, wherever its writer stopped.
	if err := w.write(StepHeader, header, 0); err != nil {
		return err
	}
	if err := w.before(StepSync, 0); err != nil {
		return err
	}
	return w.dst.Sync()
}
