package api

// Capacity describes the resources of the daemon's host, and the part promised to running and
// coming sandboxes.
type Capacity struct {
	Sandboxes int        `json:"sandboxes" doc:"Running sandboxes"`
	Coming    int        `json:"coming" doc:"VMs being started"`
	Admits    Admits     `json:"admits" doc:"Current admission of VMs: all, fewer at a time because of host pressure, or none because of pressure or an exhausted resource" enum:"all,fewer,none"`
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
	Total      int64  `json:"total" doc:"Total of the host, or of the store's file system; 0: unknown"`
	Free       int64  `json:"free" doc:"Available to new VMs, without the reserve and the share of VMs being started"`
	Reserve    int64  `json:"reserve" doc:"Amount kept free"`
	Promised   int64  `json:"promised,omitempty" doc:"Maximum future use by sandboxes; memory and disk only"`
	MayPromise int64  `json:"may_promise,omitempty" doc:"Limit of promised; absent: unlimited"`
}

// Pressure is the kernel's pressure stall information (PSI) for one resource of the host.
type Pressure struct {
	Resource string  `json:"resource" doc:"cpu, memory or io" enum:"cpu,memory,io"`
	Some     float64 `json:"some_percent" doc:"Percent of the last 10 s for which some task waited for it"`
	Fewer    float64 `json:"fewer_percent,omitempty" doc:"From here on fewer VMs are made at once; absent: never"`
	None     float64 `json:"none_percent,omitempty" doc:"From here on none is made; absent: never"`
}
