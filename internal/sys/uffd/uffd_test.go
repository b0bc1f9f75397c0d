package uffd

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRegister(t *testing.T) {
	u, err := OpenAsyncWP(nil)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	p, err := unix.MmapPtr(-1, 0, nil, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.MunmapPtr(p, 1<<16)
	if err := u.RegisterWP(uintptr(p), 1<<16); err != nil {
		t.Error(err)
	}
	if err := u.RegisterWP(uintptr(p)+1, 1<<12); err == nil {
		t.Error("an address that is no page's was registered")
	}
}

func TestOpenByTheDevice(t *testing.T) {
	device, err := os.OpenFile("/dev/userfaultfd", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer device.Close()
	u, err := OpenAsyncWP(device)
	if err != nil {
		t.Fatal(err)
	}
	u.Close()
}
