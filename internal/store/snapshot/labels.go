package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/sys/durable"
)

// LabelsFile has a snapshot's labels. Unlike the manifest it may change, so it is not among the manifest's files and
// not covered by the content hash. Programs that do not know it ignore it.
const LabelsFile = "labels.json"

const (
	labelsVersion  = 1
	maxLabelsBytes = 128 << 10 // of the file: JSON may escape each byte as six
)

type labelsFile struct {
	Version int               `json:"version"`
	Labels  map[string]string `json:"labels"`
}

// readLabels returns the labels in a snapshot's folder, which may be nil.
func readLabels(dir string) (map[string]string, error) {
	b, err := durable.ReadFile(filepath.Join(dir, LabelsFile), maxLabelsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read labels: %w", err)
	}
	return DecodeLabels(b)
}

// DecodeLabels reads the content of a LabelsFile.
func DecodeLabels(b []byte) (map[string]string, error) {
	var f labelsFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("read labels: %w", err)
	}
	if f.Version != labelsVersion {
		return nil, fmt.Errorf("read labels: their version is %d, want %d", f.Version, labelsVersion)
	}
	if err := labels.Check(f.Labels); err != nil {
		return nil, fmt.Errorf("read labels: %w", err)
	}
	return f.Labels, nil
}

func writeLabels(dir string, set map[string]string) error {
	b, err := json.Marshal(labelsFile{labelsVersion, set})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, LabelsFile)
	if err = failpoint.At(failpoint.SnapshotPrefix + "labels.write"); err == nil {
		err = durable.Rewrite(path, append(b, '\n'))
	}
	if err != nil {
		os.Remove(path + ".new")
		return fmt.Errorf("write labels: %w", err)
	}
	return nil
}

// Label sets the labels of the snapshot before Commit.
func (d *Draft) Label(set map[string]string) error {
	if len(set) == 0 {
		return nil
	}
	return writeLabels(d.dir, set)
}

// SetLabels changes a snapshot's labels. It calls change once, with the current ones, or with nil if they are
// unreadable. An error of change is returned unchanged.
func (s *Store) SetLabels(tag string, change func(map[string]string) (map[string]string, error)) error {
	if err := CheckTag(tag); err != nil {
		return err
	}
	s.naming.Lock() // the folder keeps its name until release
	defer s.naming.Unlock()
	if _, err := os.Lstat(filepath.Join(s.Dir(tag), ManifestFile)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot %s %w", tag, storeerr.ErrNotFound)
	} else if err != nil {
		return fmt.Errorf("label snapshot %s: %w", tag, err)
	}
	before, _ := readLabels(s.Dir(tag))
	after, err := change(before)
	if err != nil {
		return err
	}
	if err := writeLabels(s.Dir(tag), after); err != nil {
		return fmt.Errorf("label snapshot %s: %w", tag, err)
	}
	return nil
}
