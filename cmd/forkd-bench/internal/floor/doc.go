// Package floor measures what a host can do at best, beside which a benchmark's
// figures stand: VMs made by bare ioctls, a copy in memory, a file in the file
// system that sandboxes' disks lie in. It measures in its own process (VMs, Copy,
// Disk, ReadHost), and has it done where the VMs run, which may be the machine
// (Floors). The trap: figures of different runs must not be compared, so each
// run of a benchmark measures its own floor.
package floor
