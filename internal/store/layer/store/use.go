package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/layer"
)

// A layer in use is told by a lock on a byte of usesFile, one for each ID, and not
// on the layer's own file: that one is opened by VMs too, and whoever has a
// descriptor of a file can lock it, so that a VM which its guest has taken over
// could keep everybody out of a layer that it shares with others. The locks are
// the open file's (F_OFD_SETLK): the kernel drops them when the process dies.
const usesFile = "uses"

// beginUse keeps GC from taking a layer until the file is closed. It waits for a GC
// that is taking it.
func (d *folder) beginUse(id layer.ID) (*os.File, error) {
	f, err := d.lockUse(id, unix.F_OFD_SETLKW, unix.F_RDLCK)
	if err != nil {
		return nil, fmt.Errorf("use layer: %w", err)
	}
	return f, nil
}

// claimUse keeps others from beginning to use a layer until the file is closed. It is nil
// if somebody uses it.
func (d *folder) claimUse(id layer.ID) (*os.File, error) {
	f, err := d.lockUse(id, unix.F_OFD_SETLK, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) { // fcntl(2) knows both
		return nil, nil
	}
	return f, err
}

func (d *folder) lockUse(id layer.ID, how int, kind int16) (*os.File, error) {
	f, err := os.OpenFile(d.path(usesFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// IDs are random: two that share a byte are unlikely, and would only be kept together.
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
