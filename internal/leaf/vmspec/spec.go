// Package vmspec describes a virtual machine with plain, validated data that has the same meaning on every host.
// It has no file descriptors and opens no files; package vmm creates the machine from it. Shape has everything
// that decides whether a waiting shell fits a snapshot: memory size, number of vCPUs, number of disks. Beware of
// adding a field to Machine that a shell needs before the snapshot is known.
package vmspec

import "fmt"

// Limits of a machine. The upper memory limit keeps guest-physical addresses within 40 bits, which every KVM host
// supports.
const (
	MinMemoryMiB = 64
	MaxMemoryMiB = 512 << 10
	MaxVCPUs     = 8
	MaxDisks     = 4
	MaxSlots     = 4
)

// Shape must be equal for a shell and the snapshot that it restores. It is comparable and can be the key of a
// pool.
type Shape struct {
	// MemoryMiB is the guest's memory, in MiB.
	MemoryMiB int `json:"memory_mib"`
	// VCPUs is the number of virtual CPUs, 1 to MaxVCPUs.
	VCPUs int `json:"vcpus"`
	// Disks is the number of virtio-blk devices, 0 to MaxDisks.
	Disks int `json:"disks"`
	// Slots is the number of empty virtio-blk devices for volumes, 0 to MaxSlots.
	Slots int `json:"slots,omitempty"`
}

// Validate returns an error for the first field out of range.
func (s Shape) Validate() error {
	switch {
	case s.MemoryMiB < MinMemoryMiB || s.MemoryMiB > MaxMemoryMiB:
		return fmt.Errorf("memory_mib is %d, want %d to %d", s.MemoryMiB, MinMemoryMiB, MaxMemoryMiB)
	case s.VCPUs < 1 || s.VCPUs > MaxVCPUs:
		return fmt.Errorf("vcpus is %d, want 1 to %d", s.VCPUs, MaxVCPUs)
	case s.Disks < 0 || s.Disks > MaxDisks:
		return fmt.Errorf("disks is %d, want 0 to %d", s.Disks, MaxDisks)
	case s.Slots < 0 || s.Slots > MaxSlots:
		return fmt.Errorf("slots is %d, want 0 to %d", s.Slots, MaxSlots)
	}
	return nil
}

// KernelArgs is part of every guest kernel's command line. The image may add to it. The VM has no PCI, PIT or
// PIC. Reset uses ACPI, to distinguish a reboot from a triple fault.
const KernelArgs = "console=ttyS0 quiet panic=-1 reboot=a pci=off clocksource=kvm-clock tsc=reliable " +
	"random.trust_cpu=on 8250.nr_uarts=1 psi=0"

// MemoryBytes returns the guest's memory in bytes.
func (s Shape) MemoryBytes() int64 { return int64(s.MemoryMiB) << 20 }
