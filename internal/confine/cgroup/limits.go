package cgroup

import (
	"fmt"
	"slices"
	"strings"
)

// Limits bound a group. Zero fields are not written; in a new group they set no limit.
type Limits struct {
	Memory int64 // memory.max in bytes; above it the group's processes are killed together
	PIDs   int   // pids.max, threads
	// CPUs is cpu.max in CPUs: 0.5 is half the time of one.
	CPUs   float64
	Weight int // cpu.weight, 1 to 10000; the kernel's default is 100
	// Disk limits reads from and writes to one device.
	Disk DiskLimits
	// Whole makes the kernel kill all of the group if it kills one process: memory.oom.group.
	Whole bool
}

// DiskLimits is a line of io.max. Zero fields set no limit.
type DiskLimits struct {
	Device            string // "major:minor" of a whole disk, see DeviceOf
	ReadBPS, WriteBPS int64  // bytes per second
}

// period is the period of cpu.max in microseconds, the kernel's default.
const period = 100_000

// minQuota is the kernel's minimum for cpu.max in microseconds.
const minQuota = 1000

// setting is a value for one file of a group.
type setting struct {
	needs       Controller
	file, value string
}

// settings returns the files to write, in an order in which no value contradicts the previous ones.
func (l Limits) settings() []setting {
	var out []setting
	add := func(on bool, needs Controller, file string, value any) {
		if on {
			out = append(out, setting{needs, file, fmt.Sprint(value)})
		}
	}
	add(l.Whole, Memory, "memory.oom.group", 1)
	add(l.Memory > 0, Memory, "memory.max", l.Memory)
	add(l.PIDs > 0, PIDs, "pids.max", l.PIDs)
	add(l.CPUs > 0, CPU, "cpu.max", fmt.Sprintf("%d %d", max(minQuota, int64(l.CPUs*period)), period))
	add(l.Weight > 0, CPU, "cpu.weight", l.Weight)
	add(l.Disk.ReadBPS > 0 || l.Disk.WriteBPS > 0, IO, "io.max", l.Disk.line())
	return out
}

// line returns a line for io.max: cgroup-v2, "IO Interface Files".
func (d DiskLimits) line() string {
	fields := []string{d.Device}
	if d.ReadBPS > 0 {
		fields = append(fields, fmt.Sprintf("rbps=%d", d.ReadBPS))
	}
	if d.WriteBPS > 0 {
		fields = append(fields, fmt.Sprintf("wbps=%d", d.WriteBPS))
	}
	return strings.Join(fields, " ")
}

// Only returns the limits that the given controllers support.
func (l Limits) Only(have []Controller) Limits {
	if !slices.Contains(have, Memory) {
		l.Memory, l.Whole = 0, false
	}
	if !slices.Contains(have, PIDs) {
		l.PIDs = 0
	}
	if !slices.Contains(have, CPU) {
		l.CPUs, l.Weight = 0, 0
	}
	if !slices.Contains(have, IO) {
		l.Disk = DiskLimits{}
	}
	return l
}

// Check returns an error if a controller for the limits is missing.
func (l Limits) Check(have []Controller) error {
	for _, s := range l.settings() {
		if !slices.Contains(have, s.needs) {
			return fmt.Errorf("the %s controller of cgroup v2 is not delegated to the daemon: %w", s.needs, ErrUnsupported)
		}
	}
	return nil
}
