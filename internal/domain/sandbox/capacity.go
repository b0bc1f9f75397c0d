package sandbox

// Capacity is what the host has for sandboxes, and what of it is promised.
type Capacity struct {
	Sandboxes int // that run
	Coming    int // VMs that are being made
	Resources []Resource
	Pressure  []PressureOf
	// Admits says whether VMs are made at this moment: AdmitsAll, AdmitsFewer or AdmitsNone.
	Admits string
}

// How many VMs are made at once, for the host's pressure.
const (
	AdmitsAll   = "all"
	AdmitsFewer = "fewer"
	AdmitsNone  = "none"
)

// Names of resources.
const (
	ResourceMemory      = "memory"      // bytes
	ResourceDisk        = "disk"        // bytes of the store's file system
	ResourceDescriptors = "descriptors" // of the daemon
	ResourceThreads     = "threads"
)

// Resource is one of what VMs take of the host.
type Resource struct {
	Name    string
	Total   int64 // 0: not known
	Free    int64 // for new VMs, those that are coming and the reserve left out
	Reserve int64 // stays free
	// Promised is what the sandboxes that run, and those that are coming, could come to take.
	Promised   int64
	MayPromise int64 // 0: no bound
}

// PressureOf is how long tasks waited for a resource, in percent of the last 10 s.
type PressureOf struct {
	Name  string // cpu, memory, io
	Some  float64
	Fewer float64 // from here on fewer VMs are made at once; 0: never
	None  float64 // from here on none; 0: never
}
