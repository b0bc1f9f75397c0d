package services

import (
	"context"
	"io"
)

// Reader reads a service's log from a place on.
type Reader struct {
	log  *log
	at   int64
	more <-chan struct{} // after the last read; closed when there is more
}

// Log returns a reader of a service's last lines; of all that is kept if lines is negative.
func (s *Supervisor) Log(name string, lines int) (*Reader, error) {
	v, err := s.find(name)
	if err != nil {
		return nil, err
	}
	r := &Reader{log: v.log}
	if lines >= 0 {
		r.at = v.log.tail(lines)
	}
	return r, nil
}

// Copy writes all present output to w, with a line in place of output that is gone.
func (r *Reader) Copy(w io.Writer) error {
	buf := make([]byte, 16<<10)
	for {
		n, start, more := r.log.read(buf, r.at)
		if start > r.at {
			if _, err := w.Write(gap(start - r.at)); err != nil {
				return err
			}
		}
		r.at, r.more = start+int64(n), more
		if n == 0 {
			return nil
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// Wait waits for output after Copy. It returns false when ctx ends.
func (r *Reader) Wait(ctx context.Context) bool {
	select {
	case <-r.more:
		return true
	case <-ctx.Done():
		return false
	}
}
