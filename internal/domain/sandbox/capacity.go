package sandbox

// Capacity reports the host's resources for sandboxes, and how much of them is promised.
type Capacity struct {
	Sandboxes int // running
	Coming    int // VMs being created
	Resources []Resource
	Pressure  []PressureOf
	// Admits reports whether VMs are created at the moment: AdmitsAll, AdmitsFewer or AdmitsNone.
	Admits string
}

// Values of Capacity.Admits: how many VMs may be created concurrently, given the host's pressure.
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

// Resource is a host resource that VMs use.
type Resource struct {
	Name    string
	Total   int64 // 0 if unknown
	Free    int64 // for new VMs, without the reserve and the VMs being created
	Reserve int64 // is kept free
	// Promised is the most that running sandboxes, and VMs being created, may come to use.
	Promised   int64
	MayPromise int64 // 0 if unlimited
}

// PressureOf is the time that tasks waited for a resource, in percent of the last 10 s.
type PressureOf struct {
	Name  string // cpu, memory, io
	Some  float64
	Fewer float64 // threshold above which fewer VMs are created concurrently; 0 disables it
	None  float64 // threshold above which no VMs are created; 0 disables it
}
