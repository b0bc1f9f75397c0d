package kvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// APIVersion is the only version of the interface since 2007.
const APIVersion = 12

// System is an open /dev/kvm.
type System struct {
	f *os.File
	// runSize is the size of a vCPU's shared kvm_run mapping, in bytes.
	runSize int
}

// Open opens the KVM device at path, usually /dev/kvm.
func Open(path string) (*System, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s, err := FromFile(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// FromFile takes ownership of an open /dev/kvm and checks its API version. On error the file stays
// the caller's.
func FromFile(f *os.File) (*System, error) {
	fd := int(f.Fd())
	v, err := ioctl(fd, ioc(0, nrGetAPIVersion, 0), 0)
	if err != nil {
		return nil, fmt.Errorf("get KVM API version of %s: %w", f.Name(), err)
	}
	if v != APIVersion {
		return nil, fmt.Errorf("KVM API version of %s is %d, want %d", f.Name(), v, APIVersion)
	}
	n, err := ioctl(fd, ioc(0, nrGetVCPUMmapSize, 0), 0)
	if err != nil {
		return nil, fmt.Errorf("get size of kvm_run: %w", err)
	}
	return &System{f: f, runSize: int(n)}, nil
}

// Close closes the device. VMs created from it stay usable.
func (s *System) Close() error { return s.f.Close() }

func (s *System) fd() int { return int(s.f.Fd()) }

// Check returns a capability's value: 0 if unsupported, 1 or a count if supported.
func (s *System) Check(c Cap) int {
	r, err := ioctl(s.fd(), ioc(0, nrCheckExtension, 0), uintptr(c))
	if err != nil {
		return 0
	}
	return int(r)
}

// CreateVM creates a VM without memory, vCPUs or interrupt controllers.
func (s *System) CreateVM() (*VM, error) {
	fd, err := ioctl(s.fd(), ioc(0, nrCreateVM, 0), 0)
	if err != nil {
		return nil, fmt.Errorf("create VM: %w", err)
	}
	return &VM{fd: int(fd), runSize: s.runSize}, nil
}

const cpuidEntrySize = 40

// SupportedCPUID returns the CPUID leaves that this host can give to a guest.
func (s *System) SupportedCPUID() ([]CPUIDEntry, error) {
	for n := 128; n <= 4096; n *= 2 {
		buf := make([]byte, 8+n*cpuidEntrySize)
		binary.LittleEndian.PutUint32(buf, uint32(n))
		_, err := ioctlVar(s.fd(), iocRead|iocWrite, nrGetSupportedCPU, 8, buf)
		if errors.Is(err, unix.E2BIG) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get supported CPUID: %w", err)
		}
		return decodeCPUID(buf), nil
	}
	return nil, errors.New("get supported CPUID: more than 4096 leaves")
}

// MSRIndexList returns the indices of the MSRs in a vCPU's state.
func (s *System) MSRIndexList() ([]uint32, error) {
	for n := 256; n <= 16384; n *= 2 {
		buf := make([]byte, 4+n*4)
		binary.LittleEndian.PutUint32(buf, uint32(n))
		_, err := ioctlVar(s.fd(), iocRead|iocWrite, nrGetMSRIndexList, 4, buf)
		if errors.Is(err, unix.E2BIG) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get MSR index list: %w", err)
		}
		count := binary.LittleEndian.Uint32(buf)
		out := make([]uint32, count)
		for i := range out {
			out[i] = binary.LittleEndian.Uint32(buf[4+4*i:])
		}
		return out, nil
	}
	return nil, errors.New("get MSR index list: more than 16384 MSRs")
}

func decodeCPUID(buf []byte) []CPUIDEntry {
	n := binary.LittleEndian.Uint32(buf)
	out := make([]CPUIDEntry, n)
	for i := range out {
		b := buf[8+i*cpuidEntrySize:]
		out[i] = CPUIDEntry{
			Function: binary.LittleEndian.Uint32(b), Index: binary.LittleEndian.Uint32(b[4:]),
			Flags: binary.LittleEndian.Uint32(b[8:]), EAX: binary.LittleEndian.Uint32(b[12:]),
			EBX: binary.LittleEndian.Uint32(b[16:]), ECX: binary.LittleEndian.Uint32(b[20:]),
			EDX: binary.LittleEndian.Uint32(b[24:]),
		}
	}
	return out
}

func encodeCPUID(entries []CPUIDEntry) []byte {
	buf := make([]byte, 8+len(entries)*cpuidEntrySize)
	binary.LittleEndian.PutUint32(buf, uint32(len(entries)))
	for i, e := range entries {
		b := buf[8+i*cpuidEntrySize:]
		for j, v := range []uint32{e.Function, e.Index, e.Flags, e.EAX, e.EBX, e.ECX, e.EDX} {
			binary.LittleEndian.PutUint32(b[4*j:], v)
		}
	}
	return buf
}
