// Package floor measures the best possible results of a host, as a reference for a benchmark's
// figures: VMs made by bare ioctls, a copy in memory, a file in the file system of the sandboxes'
// disks. VMs, Copy, Disk and ReadHost measure in the calling process. Floors measures on the host
// of the VMs, which may be the machine. The trap: do not compare figures of different runs. Each
// run of a benchmark measures its own floor.
package floor
