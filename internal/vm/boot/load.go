package boot

import (
	"fmt"
	"io"

	"github.com/forkd/forkd/internal/vm/boot/acpi"
	"github.com/forkd/forkd/internal/vm/guestmem"
)

// Config describes what Load loads.
type Config struct {
	Kernel     io.ReaderAt // ELF vmlinux
	Initrd     io.ReaderAt // may be nil
	InitrdSize int64       // bytes
	Cmdline    string      // the kernel's command line, without a final zero byte
	VCPUs      int         // number of vCPUs in the ACPI tables
	MMIO       int         // number of virtio-mmio devices
	GenID      [16]byte    // the generation ID at boot; a restore replaces it
}

// Load fills mem, which must be fresh zero pages, and returns the start state of the first vCPU.
func Load(mem *guestmem.Map, c Config) (Start, error) {
	entry, end, err := loadKernel(mem, c.Kernel)
	if err != nil {
		return Start{}, fmt.Errorf("load kernel: %w", err)
	}
	var rd initrd
	if c.Initrd != nil {
		low := mem.Regions()[0]
		addr, err := loadInitrd(mem, c.Initrd, c.InitrdSize, low.GPA+uint64(low.Size), end)
		if err != nil {
			return Start{}, err
		}
		rd = initrd{addr, uint64(c.InitrdSize)}
	}
	if err := writeCmdline(mem, c.Cmdline); err != nil {
		return Start{}, err
	}
	if err := writeZeroPage(mem, ramRegions(mem), rd); err != nil {
		return Start{}, err
	}
	if err := writeTables(mem); err != nil {
		return Start{}, err
	}
	if err := writeACPI(mem, c); err != nil {
		return Start{}, err
	}
	return start(entry), nil
}

func ramRegions(mem *guestmem.Map) []region {
	var out []region
	for _, r := range mem.Regions() {
		out = append(out, region{r.GPA, uint64(r.Size), e820RAM})
	}
	return out
}

func writeACPI(mem *guestmem.Map, c Config) error {
	hw := acpi.Hardware{
		CPUs: c.VCPUs, LAPICAddr: lapicAddr, IOAPICAddr: ioapicAddr,
		ResetPort: ResetPort, ResetValue: ResetValue, SleepControlPort: SleepPort, SleepStatusPort: sleepStatPort,
		SerialPort: SerialPort, SerialIRQ: SerialIRQ, GenIDAddr: GenIDAddr, GenIDIRQ: GenIDIRQ,
	}
	for i := range c.MMIO {
		hw.VirtIO = append(hw.VirtIO, acpi.VirtIO{Addr: uint32(MMIOAddr(i)), Size: MMIOStride, IRQ: MMIOIRQ(i)})
	}
	tables, err := acpi.Build(hw, acpiStart, genIDOffset)
	if err != nil {
		return err
	}
	area, err := mem.Slice(acpiStart, acpiEnd-acpiStart)
	if err != nil {
		return fmt.Errorf("place ACPI tables: %w", err)
	}
	copy(area, tables)
	copy(area[genIDOffset:], c.GenID[:])
	return nil
}
