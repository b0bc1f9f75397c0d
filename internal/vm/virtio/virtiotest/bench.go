// Package virtiotest is a guest driver for tests. It drives a virtio device through its transport's
// registers and rings, like a kernel, over memory in a byte slice. It checks the device's answers
// and never sleeps to wait. Only tests may import it. Do not share a Driver between goroutines:
// like a kernel's virtqueue, its queues are not locked.
package virtiotest

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/vm/virtio"
	"golang.org/x/sys/unix"
)

// Memory is guest RAM from address 0, implementing virtio.Memory.
type Memory struct {
	ram []byte

	mu   sync.Mutex
	next uint64 // bump allocator
}

// NewMemory returns n bytes of RAM. n is a multiple of 4.
func NewMemory(n int) *Memory { return &Memory{ram: make([]byte, n), next: 0x1000} }

// Slice implements virtio.Memory.
func (m *Memory) Slice(gpa uint64, n int) ([]byte, error) {
	if n < 0 || gpa > uint64(len(m.ram)) || uint64(n) > uint64(len(m.ram))-gpa {
		return nil, fmt.Errorf("%#x+%#x is outside RAM", gpa, n)
	}
	return m.ram[gpa:][:n:n], nil
}

// Size returns the amount of RAM. It is also the first address outside.
func (m *Memory) Size() uint64 { return uint64(len(m.ram)) }

// Bytes returns the n bytes at gpa, a valid address chosen by the driver.
func (m *Memory) Bytes(gpa uint64, n int) []byte {
	b, err := m.Slice(gpa, n)
	if err != nil {
		panic("virtiotest: " + err.Error())
	}
	return b
}

// Alloc reserves n bytes aligned to 64. Memory is never freed.
func (m *Memory) Alloc(n int) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.next
	m.next = (at + uint64(n) + 63) &^ 63
	if m.next > uint64(len(m.ram)) {
		panic("virtiotest: guest RAM is used up")
	}
	return at
}

// Put allocates memory and fills it with p.
func (m *Memory) Put(p []byte) uint64 {
	at := m.Alloc(len(p))
	copy(m.Bytes(at, len(p)), p)
	return at
}

// Clone returns a copy of the RAM, like a restored VM's.
func (m *Memory) Clone() *Memory {
	return &Memory{ram: append([]byte(nil), m.ram...), next: m.next}
}

// Bench is a device behind its transport, with memory and an interrupt line.
type Bench struct {
	MMIO *virtio.MMIO // closed at the end of the test
	Mem  *Memory      // shared by the device and its driver
	// IRQ holds one token after an interrupt.
	IRQ chan struct{}

	mu     sync.Mutex
	faults []error
}

// New attaches dev to a bench with mem and closes it at the end of the test. Kicks do their work
// before the driver's notification returns.
func New(t testing.TB, dev virtio.Device, mem *Memory) *Bench { return newBench(t, dev, mem, nil) }

// NewAsync is New with kicks through an eventfd, as under KVM.
func NewAsync(t testing.TB, dev virtio.Device, mem *Memory) *Bench {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return newBench(t, dev, mem, os.NewFile(uintptr(fd), "kick"))
}

func newBench(t testing.TB, dev virtio.Device, mem *Memory, kick *os.File) *Bench {
	b := &Bench{Mem: mem, IRQ: make(chan struct{}, 1)}
	b.MMIO = virtio.NewMMIO(virtio.Config{Device: dev, Memory: mem, Raise: b.raise, Kick: kick, Fault: b.noteFault})
	t.Cleanup(func() {
		if err := b.MMIO.Close(); err != nil {
			t.Errorf("close transport: %v", err)
		}
	})
	return b
}

func (b *Bench) raise() {
	select {
	case b.IRQ <- struct{}{}:
	default:
	}
}

func (b *Bench) noteFault(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, err)
}

// Fault returns the first reason why the device needed a reset, or nil.
func (b *Bench) Fault() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) == 0 {
		return nil
	}
	return b.faults[0]
}

// Read32 reads a register.
func (b *Bench) Read32(off uint64) uint32 {
	var p [4]byte
	b.MMIO.ReadMMIO(off, p[:])
	return binary.LittleEndian.Uint32(p[:])
}

// Write32 writes a register.
func (b *Bench) Write32(off uint64, v uint32) {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], v)
	b.MMIO.WriteMMIO(off, p[:])
}

// Config reads n bytes of configuration space.
func (b *Bench) Config(off uint64, n int) []byte {
	p := make([]byte, n)
	b.MMIO.ReadMMIO(0x100+off, p)
	return p
}
