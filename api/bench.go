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
