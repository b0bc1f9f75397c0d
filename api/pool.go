package api

// Pool gives the number of ready shells (pre-created VMMs) for a snapshot.
type Pool struct {
	Tag       string `json:"tag" doc:"Snapshot of the pool"`
	MemoryMiB int    `json:"memory_mib" doc:"Guest memory of the shells"`
	VCPUs     int    `json:"vcpus" doc:"Virtual CPUs of the shells"`
	Disks     int    `json:"disks" doc:"Disks of the shells"`
	Size      int    `json:"size" doc:"Number of shells to keep ready"`
	Ready     int    `json:"ready" doc:"Number of ready VMs for a fork of the snapshot"`
}

// SetPoolRequest is the body of PUT /v1/snapshots/{tag}/pool.
type SetPoolRequest struct {
	Size int `json:"size" doc:"Number of shells to keep ready, prepared with the snapshot" minimum:"0" maximum:"1000"`
}
