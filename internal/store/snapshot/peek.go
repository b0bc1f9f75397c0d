package snapshot

import "github.com/forkd/forkd/internal/store/layer/store"

// Peek opens a snapshot in a directory owned by another process. It removes and pins no files. The caller closes
// the files.
func Peek(dir string, layers *store.Store, tag string) (*Files, error) {
	if err := CheckTag(tag); err != nil {
		return nil, err
	}
	return (&Store{dir: dir, layers: layers}).Open(tag)
}
