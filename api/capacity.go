package api

// Capacity describes the resources of the daemon's host, and the part promised to running and
// coming sandboxes.
type Capacity struct {
	Sandboxes int        `json:"sandboxes" doc:"Sandboxes that run"`
	Coming    int        `json:"coming" doc:"VMs that are being made"`
	Admits    Admits     `json:"admits" doc:"Whether VMs are made at this moment: all that there is room for, fewer at once for the host's pressure, or none for that or because a resource is used up" enum:"all,fewer,none"`
	Resources []Resource `json:"resources" doc:"memory, disk, descriptors, threads" nullable:"false"`
	Pressure  []Pressure `json:"pressure" doc:"cpu, memory, io" nullable:"false"`
}

// Admits describes how many VMs a daemon creates at the same time under its host's pressure.
type Admits string

const (
	AdmitsAll   Admits = "all"
	AdmitsFewer Admits = "fewer"
	AdmitsNone  Admits = "none"
)

// Resource is one resource sandboxes use. Memory and disk are in bytes. Descriptors of the daemon
// and threads are counted.
type Resource struct {
	Resource   string `json:"resource" doc:"memory, disk, descriptors or threads" enum:"memory,disk,descriptors,threads"`
	Total      int64  `json:"total" doc:"What the host has; of disk the file system of the store; 0: not known"`
	Free       int64  `json:"free" doc:"What there is for new VMs, without the reserve and what those that are coming take at once"`
	Reserve    int64  `json:"reserve" doc:"What stays free"`
	Promised   int64  `json:"promised,omitempty" doc:"What sandboxes could come to take; of memory and disk"`
	MayPromise int64  `json:"may_promise,omitempty" doc:"The most that may be promised; absent: any amount"`
}

// Pressure is the kernel's pressure stall information (PSI) for one resource of the host.
type Pressure struct {
	Resource string  `json:"resource" doc:"cpu, memory or io" enum:"cpu,memory,io"`
	Some     float64 `json:"some_percent" doc:"Percent of the last 10 s for which some task waited for it"`
	Fewer    float64 `json:"fewer_percent,omitempty" doc:"From here on fewer VMs are made at once; absent: never"`
	None     float64 `json:"none_percent,omitempty" doc:"From here on none is made; absent: never"`
}
