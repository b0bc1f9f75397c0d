package generation

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Device reads the address from the kernel's socket device. The zero value is ready to use. The
// descriptor stays open after the first read: when all connections of a clone break at the same
// time, the process may have no descriptor left.
type Device struct {
	mu     sync.Mutex
	f      *os.File
	closed bool
}

var _ Addresser = (*Device)(nil)

const devicePath = "/dev/vsock"

// ContextID implements Addresser.
func (d *Device) ContextID() (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, fmt.Errorf("read the guest's socket address: %w", os.ErrClosed)
	}
	if d.f == nil {
		f, err := os.Open(devicePath)
		if err != nil {
			return 0, fmt.Errorf("open socket device: %w", err)
		}
		d.f = f
	}
	cid, err := unix.IoctlGetUint32(int(d.f.Fd()), unix.IOCTL_VM_SOCKETS_GET_LOCAL_CID)
	if err != nil {
		return 0, fmt.Errorf("read the guest's socket address: %w", err)
	}
	return cid, nil
}

// Close closes the descriptor. Later reads of the address fail.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.f == nil {
		return nil
	}
	f := d.f
	d.f = nil
	return f.Close()
}
