package api

// Capacity is what the daemon's host has for sandboxes, and what of it is promised to those that
// run and those that are coming.
type Capacity struct {
	Sandboxes int        `json:"sandboxes" doc:"Sandboxes that run"`
	Coming    int        `json:"coming" doc:"VMs that are being made"`
	Admits    Admits     `json:"admits" doc:"Whether VMs are made at this moment: all that there is room for, fewer at once for the host's pressure, or none for that or because a resource is used up" enum:"all,fewer,none"`
	Resources []Resource `json:"resources" doc:"memory, disk, descriptors, threads" nullable:"false"`
	Pressure  []Pressure `json:"pressure" doc:"cpu, memory, io" nullable:"false"`
}

// Admits is how many VMs a daemon makes at once, for its host's pressure.
type Admits string

const (
	AdmitsAll   Admits = "all"
	AdmitsFewer Admits = "fewer"
	AdmitsNone  Admits = "none"
)

// Resource is one of what sandboxes take: memory and disk in bytes, descriptors of the daemon and
// threads by number.
type Resource struct {
	Resource   string `json:"resource" doc:"memory, disk, descriptors or threads" enum:"memory,disk,descriptors,threads"`
	Total      int64  `json:"total" doc:"What the host has; of disk the file system of the store; 0: not known"`
	Free       int64  `json:"free" doc:"What there is for new VMs, without the reserve and what those that are coming take at once"`
	Reserve    int64  `json:"reserve" doc:"What stays free"`
	Promised   int64  `json:"promised,omitempty" doc:"What sandboxes could come to take; of memory and disk"`
	MayPromise int64  `json:"may_promise,omitempty" doc:"The most that may be promised; absent: any amount"`
}

// Pressure is how much is waited for one resource of the host (PSI).
type Pressure struct {
	Resource string  `json:"resource" doc:"cpu, memory or io" enum:"cpu,memory,io"`
	Some     float64 `json:"some_percent" doc:"Percent of the last 10 s for which some task waited for it"`
	Fewer    float64 `json:"fewer_percent,omitempty" doc:"From here on fewer VMs are made at once; absent: never"`
	None     float64 `json:"none_percent,omitempty" doc:"From here on none is made; absent: never"`
}
