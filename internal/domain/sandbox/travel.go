package sandbox

// ExportRequest asks for a snapshot as a stream.
type ExportRequest struct {
	Tag string
	// Secrets are the secrets of running guests. A snapshot that contains one is refused.
	Secrets []string
}

// ImportRequest asks to make a snapshot from a stream.
type ImportRequest struct {
	Tag   string
	Owner string // tenant of the snapshot; empty for the operator
	// Check only judges the beginning of a stream, up to the VM's state.
	Check bool
}
