package api

// Image is a built image in the daemon's store.
type Image struct {
	Name          string `json:"name" doc:"Name of the image"`
	Digest        string `json:"digest" doc:"Digest of its contents, sha256:<hex>"`
	SizeBytes     int64  `json:"size_bytes" doc:"Bytes it takes on the disk"`
	CreatedAtUnix int64  `json:"created_at_unix" doc:"When it was built, in seconds since 1970"`
	KernelVersion string `json:"kernel_version,omitempty" doc:"Kernel of the image"`
	MemoryMiB     int    `json:"memory_mib,omitempty" doc:"Memory its recipe asks for"`
	VCPUs         int    `json:"vcpus,omitempty" doc:"Virtual CPUs its recipe asks for"`
	Description   string `json:"description,omitempty" doc:"Description in its recipe"`
}

// HeaderDigest carries an image's digest in the answer to GET and HEAD /v1/images/{name}. In a PUT,
// the daemon refuses a body with another digest.
const HeaderDigest = "Forkd-Digest"
