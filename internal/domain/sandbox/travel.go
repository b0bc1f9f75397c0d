package sandbox

import "io"

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
	// PauseOf is the sandbox that is to be paused in it, or empty. It is deleted with its last user then.
	PauseOf string
}

// Fetched returns the part of a snapshot's bytes that have arrived, in percent.
func (s SnapshotInfo) Fetched() int64 {
	if s.FetchBytes == 0 {
		return 100
	}
	return 100 * s.FetchedBytes / s.FetchBytes
}

// Blobs are the manifest and the blobs of one snapshot, for another daemon (docs/inside/formats/hub.md). The readers are
// valid until Close.
type Blobs interface {
	// Manifest returns the artifact's manifest.
	Manifest() []byte
	// Blob returns the blob with a digest, or nil.
	Blob(digest string) io.ReadSeekCloser
	Close()
}
