package client

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/sys/unixfd"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// Files are reopened for a VMM. A descriptor merely passed on shares the sender's open file
// description. With it, a VMM taken over by its guest could write to files meant for reading,
// release the daemon's locks, and set flags for the daemon and its siblings. docs/inside/vmm.md
// lists the files of each message.

// borrowed holds the files of one message, in order. close closes the ones opened for it.
type borrowed struct {
	files  []*os.File
	opened []*os.File
}

func (b *borrowed) close() { unixfd.CloseAll(b.opened) }

// lend reopens files, except for those with AsIs.
func lend(files []wire.File) (*borrowed, error) {
	b := &borrowed{files: make([]*os.File, 0, len(files))}
	for _, f := range files {
		if f.Access == wire.AsIs {
			b.files = append(b.files, f.File)
			continue
		}
		own, err := reopen(f)
		if err != nil {
			b.close()
			return nil, fmt.Errorf("open %s for the VMM: %w", f.Name(), err)
		}
		b.files, b.opened = append(b.files, own), append(b.opened, own)
	}
	return b, nil
}

// reopen returns another open file description of the same file, whatever its current name.
func reopen(f wire.File) (*os.File, error) {
	mode := unix.O_RDONLY
	if f.Access == wire.Write {
		mode = unix.O_RDWR
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), mode|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	own := os.NewFile(uintptr(fd), f.Name())
	if f.Access == wire.Read {
		return own, nil // a VMM reads by position
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = own.Seek(at, io.SeekStart)
	}
	if err != nil {
		own.Close()
		return nil, err
	}
	return own, nil
}
