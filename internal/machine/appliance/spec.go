package appliance

import (
	"fmt"
	"runtime"

	"github.com/forkd/forkd/internal/sys/hostproc"
)

// Spec is the size of a machine. It is plain data, stored in the state file.
type Spec struct {
	CPUs      int `json:"cpus"`
	MemoryMiB int `json:"memory_mib"`
	DiskGiB   int `json:"disk_gib"`
}

// Limits of a Spec. The lower ones are the appliance's practical minimum.
const (
	maxDefaultCPUs   = 8
	maxCPUs          = 254 // 255 APIC ids without x2APIC, one of them spare (launch.sparesFirstCPU)
	minMemoryMiB     = 768
	maxDefaultMemory = 6 << 10
	defaultDiskGiB   = 20
	minDiskGiB       = 1
)

// withDefaults sets zero fields, from the earlier run's spec or else from the host.
func (s Spec) withDefaults(earlier Spec) Spec {
	pick := func(asked, earlier, otherwise int) int {
		switch {
		case asked != 0:
			return asked
		case earlier != 0:
			return earlier
		}
		return otherwise
	}
	s.CPUs = pick(s.CPUs, earlier.CPUs, min(runtime.NumCPU(), maxDefaultCPUs))
	s.MemoryMiB = pick(s.MemoryMiB, earlier.MemoryMiB, defaultMemory(hostMemoryMiB()))
	s.DiskGiB = pick(s.DiskGiB, earlier.DiskGiB, defaultDiskGiB)
	return s
}

// defaultMemory returns half of the host's memory, within limits. QEMU allocates it only as the appliance uses
// it.
func defaultMemory(hostMiB int) int {
	return max(minMemoryMiB, min(hostMiB/2, maxDefaultMemory))
}

func (s Spec) validate() error {
	switch {
	case s.CPUs < 1 || s.CPUs > maxCPUs:
		return fmt.Errorf("cpus is %d, want 1 to %d", s.CPUs, maxCPUs)
	case s.MemoryMiB < minMemoryMiB:
		return fmt.Errorf("memory is %d MiB, want at least %d", s.MemoryMiB, minMemoryMiB)
	case s.DiskGiB < minDiskGiB:
		return fmt.Errorf("disk is %d GiB, want at least %d", s.DiskGiB, minDiskGiB)
	}
	return nil
}

// hostMemoryMiB returns the host's memory, or 0 if it is unknown.
func hostMemoryMiB() int {
	total, _ := hostproc.MemTotal()
	return int(total >> 20)
}
