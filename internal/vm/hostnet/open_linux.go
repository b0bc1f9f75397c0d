package hostnet

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	device     = "/dev/net/tun"
	headerSize = 12 // of virtio_net_hdr_mrg_rxbuf, which precedes each frame
)

func open(name string) (*os.File, error) {
	if _, err := net.InterfaceByName(name); err != nil {
		return nil, fmt.Errorf("there is no such device on the daemon's host: make it with `ip tuntap add dev %s mode tap`",
			name)
	}
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: device, Err: err}
	}
	if err := attach(fd, name); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tap "+name), nil
}

// attach makes fd the queue of a device.
func attach(fd int, name string) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return attachError(err)
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); err != nil {
		return os.NewSyscallError("ioctl TUNGETIFF", err)
	}
	if req.Uint16()&unix.IFF_PERSIST == 0 { // the device vanished between the lookup and the ioctl, which created another
		return errors.New("it is not persistent: make it with `ip tuntap add`")
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, headerSize); err != nil {
		return os.NewSyscallError("ioctl TUNSETVNETHDRSZ", err)
	}
	// The previous user may have enabled offloads unknown to this guest's driver. The VMM sets the
	// supported ones.
	return os.NewSyscallError("ioctl TUNSETOFFLOAD", unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, 0))
}

// attachError explains an error of TUNSETIFF.
func attachError(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return ErrBusy
	case errors.Is(err, unix.EPERM):
		return errors.New("it belongs to another user than the daemon's: make it with `ip tuntap add ... user`")
	case errors.Is(err, unix.EINVAL):
		return errors.New("it is not a tap with one queue (`ip tuntap add ... mode tap`)")
	}
	return os.NewSyscallError("ioctl TUNSETIFF", err)
}
