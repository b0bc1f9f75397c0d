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
	// Start is empty for an image without a service of its own.
	Start string `json:"start,omitempty" doc:"Command line of the service that runs in snapshots of the image"`
	// Container is set for an image that was pulled or imported.
	Container *ImageContainer `json:"container,omitempty" doc:"The container image that it was made from"`
}

// ImageContainer describes the container image that an image was made from. Forks run no program of it on their own.
type ImageContainer struct {
	Reference    string            `json:"reference" doc:"Reference in a registry, or name of the file"`
	Digest       string            `json:"digest" doc:"Digest of its manifest, sha256:<hex>"`
	Entrypoint   []string          `json:"entrypoint,omitempty" doc:"Program, before the command"`
	Cmd          []string          `json:"cmd,omitempty" doc:"Default command or arguments"`
	User         string            `json:"user,omitempty" doc:"Default user of programs"`
	Workdir      string            `json:"workdir,omitempty" doc:"Default working directory of programs"`
	Env          map[string]string `json:"env,omitempty" doc:"Default variables of programs"`
	ExposedPorts []string          `json:"exposed_ports,omitempty" doc:"Ports of its servers, as 80/tcp"`
	StopSignal   string            `json:"stop_signal,omitempty" doc:"Signal that ends its program"`
	Healthcheck  *ImageHealthcheck `json:"healthcheck,omitempty" doc:"Command that checks its service"`
}

// ImageHealthcheck is the health check of a container image. It runs only in a service declared with it.
type ImageHealthcheck struct {
	Test            []string `json:"test,omitempty" doc:"CMD and its arguments, or CMD-SHELL and a script"`
	IntervalSecs    float64  `json:"interval_secs,omitempty" doc:"Time between checks, in seconds"`
	TimeoutSecs     float64  `json:"timeout_secs,omitempty" doc:"Limit for a check, in seconds"`
	StartPeriodSecs float64  `json:"start_period_secs,omitempty" doc:"Time for the service to start, in seconds"`
	Retries         int      `json:"retries,omitempty" doc:"Failures in a row until the service counts as unhealthy"`
}

// HeaderDigest carries an image's digest in the answer to GET and HEAD /v1/images/{name}. In a PUT,
// the daemon refuses a body with another digest.
const HeaderDigest = "Forkd-Digest"
