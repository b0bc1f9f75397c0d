package generation

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Device reads the address from the kernel's socket device. The zero value is
// ready. The descriptor is kept from the first reading on: when a clone's
// connections break, all at once, there may be none left.
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

// Close gives the descriptor back. Afterwards no address is read any more.
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
