package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/layer"
)

// A layer in use has a lock on a byte of usesFile, one byte for each ID. The lock is not on the layer's file,
// because VMs open that file, too, and each process with a descriptor can lock a file. A VMM taken over by its
// guest could lock all other processes out of a shared layer. The locks belong to the open file (F_OFD_SETLK):
// the kernel releases them when the process dies.
const usesFile = "uses"

// beginUse keeps GC from taking a layer until the file is closed. It waits while a GC is taking the layer.
func (d *folder) beginUse(id layer.ID) (*os.File, error) {
	f, err := d.lockUse(id, unix.F_OFD_SETLKW, unix.F_RDLCK)
	if err != nil {
		return nil, fmt.Errorf("use layer: %w", err)
	}
	return f, nil
}

// claimUse prevents new uses of a layer until the file is closed. It returns nil if the layer is in use.
func (d *folder) claimUse(id layer.ID) (*os.File, error) {
	f, err := d.lockUse(id, unix.F_OFD_SETLK, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) { // fcntl(2) allows both
		return nil, nil
	}
	return f, err
}

func (d *folder) lockUse(id layer.ID, how int, kind int16) (*os.File, error) {
	f, err := os.OpenFile(d.path(usesFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// IDs are random. Two that share a byte are unlikely, and would only be kept together.
	lock := unix.Flock_t{Type: kind, Start: int64(binary.LittleEndian.Uint64(id[:8]) >> 2), Len: 1}
	for {
		if err = unix.FcntlFlock(f.Fd(), how, &lock); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
