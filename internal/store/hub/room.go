package hub

import "io"

// roomEvery is the number of bytes between two checks of the free space.
const roomEvery = 4 << 20

// roomy checks the free space of the disk as it writes.
type roomy struct {
	w interface {
		io.Writer
		io.WriterAt
	}
	room func(bytes int64) error
	left int
}

func (r *roomy) check(n int) error {
	if r.left -= n; r.left > 0 {
		return nil
	}
	r.left = roomEvery
	return r.room(int64(n))
}

func (r *roomy) Write(b []byte) (int, error) {
	if err := r.check(len(b)); err != nil {
		return 0, err
	}
	return r.w.Write(b)
}

func (r *roomy) WriteAt(b []byte, at int64) (int, error) {
	if err := r.check(len(b)); err != nil {
		return 0, err
	}
	return r.w.WriteAt(b, at)
}
