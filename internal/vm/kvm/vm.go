package kvm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// VM is a virtual machine's file descriptor. Any thread may call its methods.
type VM struct {
	fd      int
	runSize int
}

// Close closes the descriptor. The kernel frees the VM once its vCPUs are closed as well.
func (v *VM) Close() error { return unix.Close(v.fd) }

// SetTSSAddr sets three unused guest-physical pages, which Intel hosts need for real mode (api.rst
// §4.25).
func (v *VM) SetTSSAddr(gpa uint64) error {
	_, err := ioctl(v.fd, ioc(0, nrSetTSSAddr, 0), uintptr(gpa))
	return wrap("set TSS address", err)
}

// SetIdentityMapAddr sets one more such page (api.rst §4.31). Call it before the first vCPU is
// created.
func (v *VM) SetIdentityMapAddr(gpa uint64) error {
	return wrap("set identity map address", ioctlPtr(v.fd, iocWrite, nrSetIdentityMap, &gpa))
}

// CreateIRQChip creates the in-kernel interrupt controllers. Call it before the
// first vCPU is created.
func (v *VM) CreateIRQChip() error {
	_, err := ioctl(v.fd, ioc(0, nrCreateIRQChip, 0), 0)
	return wrap("create interrupt controllers", err)
}

// SetMemory maps size bytes at host address hva to guest-physical gpa. The
// mapping behind hva may be replaced later without another call. Size 0 removes the slot.
func (v *VM) SetMemory(slot uint32, gpa, size uint64, hva uintptr) error {
	r := userMemoryRegion{Slot: slot, GPA: gpa, Size: size, UserAddr: uint64(hva)}
	if err := ioctlPtr(v.fd, iocWrite, nrSetUserMemRegion, &r); err != nil {
		return fmt.Errorf("set memory slot %d (%d bytes at guest-physical %#x): %w", slot, size, gpa, err)
	}
	return nil
}

// PulseIRQ raises the interrupt line gsi and lowers it: one interrupt of an edge-triggered line,
// which has reached the local APICs when PulseIRQ returns.
func (v *VM) PulseIRQ(gsi uint32) error {
	for level := uint32(1); ; level-- {
		if err := ioctlPtr(v.fd, iocWrite, nrIRQLine, &irqLevel{IRQ: gsi, Level: level}); err != nil {
			return fmt.Errorf("raise interrupt %d: %w", gsi, err)
		}
		if level == 0 {
			return nil
		}
	}
}

// IOEventFD makes a 4-byte guest write of any value to gpa signal the eventfd instead of leaving
// Run.
func (v *VM) IOEventFD(eventfd int, gpa uint64) error {
	a := ioeventfd{Addr: gpa, Len: 4, FD: int32(eventfd)}
	if err := ioctlPtr(v.fd, iocWrite, nrIOEventFD, &a); err != nil {
		return fmt.Errorf("attach ioeventfd at %#x: %w", gpa, err)
	}
	return nil
}

// Clock reads the paravirtual clock.
func (v *VM) Clock() (ClockData, error) {
	var c ClockData
	err := ioctlPtr(v.fd, iocRead, nrGetClock, &c)
	return c, wrap("get clock", err)
}

// SetClock sets the paravirtual clock to ns nanoseconds at the time of the call.
func (v *VM) SetClock(ns uint64) error {
	return wrap("set clock", ioctlPtr(v.fd, iocWrite, nrSetClock, &ClockData{Clock: ns}))
}

// IRQChip reads one interrupt controller's state.
func (v *VM) IRQChip(id uint32) (IRQChipState, error) {
	s := IRQChipState{ID: id}
	err := ioctlPtr(v.fd, iocRead|iocWrite, nrGetIRQChip, &s)
	return s, wrap("get interrupt controller", err)
}

// SetIRQChip loads one interrupt controller's state. The header declares this request with the read
// direction, although the kernel only reads our data.
func (v *VM) SetIRQChip(s *IRQChipState) error {
	return wrap("set interrupt controller", ioctlPtr(v.fd, iocRead, nrSetIRQChip, s))
}

// CreateVCPU creates the vCPU with the given APIC id and maps its run area.
func (v *VM) CreateVCPU(id int) (*VCPU, error) {
	fd, err := ioctl(v.fd, ioc(0, nrCreateVCPU, 0), uintptr(id))
	if err != nil {
		return nil, fmt.Errorf("create vCPU %d: %w", id, err)
	}
	run, err := unix.Mmap(int(fd), 0, v.runSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(int(fd))
		return nil, fmt.Errorf("map run area of vCPU %d: %w", id, err)
	}
	return &VCPU{fd: int(fd), id: id, run: run}, nil
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
