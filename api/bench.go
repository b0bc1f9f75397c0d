package api

// FloorRequest is the body of POST /v1/snapshots/{tag}/floor.
type FloorRequest struct {
	N int `json:"n" doc:"Number of VMs to make" minimum:"1" maximum:"1000"`
}

// CopyRequest is the body of POST /v1/host/copy.
type CopyRequest struct {
	Bytes int64 `json:"bytes" doc:"How many bytes to copy" minimum:"0" maximum:"1073741824"`
}

// Floor is the least that N VMs of a snapshot's size can cost on the daemon's host.
type Floor struct {
	WallMS float64 `json:"wall_ms" doc:"From the first ioctl to the last VM's first exit, in milliseconds"`
}

// Host describes the daemon's host.
type Host struct {
	CPUs            int   `json:"cpus" doc:"Number of CPUs"`
	MemAvailableKiB int64 `json:"mem_available_kib" doc:"MemAvailable of /proc/meminfo"`
}

// DiskRequest is the body of POST /v1/host/disk.
type DiskRequest struct {
	MiB       int `json:"mib" doc:"Size of the file" minimum:"1" maximum:"4096"`
	RandomOps int `json:"random_ops" doc:"How many blocks of 4 KiB to write, and to read, at random places" minimum:"1" maximum:"1000000"`
}

// DiskFigures are the rates of a file system. Writes include the fsync at their end.
type DiskFigures struct {
	SequentialWriteMiBPerS float64 `json:"sequential_write_mib_per_s" doc:"In blocks of 1 MiB, with the fsync at the end"`
	SequentialReadMiBPerS  float64 `json:"sequential_read_mib_per_s" doc:"In blocks of 1 MiB"`
	RandomWritesPerS       float64 `json:"random_writes_per_s" doc:"Of 4 KiB, with the fsync at the end"`
	RandomReadsPerS        float64 `json:"random_reads_per_s" doc:"Of 4 KiB"`
}
