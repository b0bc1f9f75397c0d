package partial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
)

// Names in the folder of a partial file. The folder is named by the file's ID. A folder without specFile is not
// complete and is removed by the collection.
const (
	specFile  = "spec.json"
	tableFile = "table"
	bitsFile  = "have"
	orderFile = "order"
)

const (
	format       = 1
	maxSpecBytes = 64 << 10
	maxTable     = 48 + (hub.MaxContent/hub.ChunkBytes+8)*36
	maxOrder     = 4 * (hub.MaxContent / hub.ChunkBytes)
)

// Spec describes a file and its place in a registry. It has no credentials.
type Spec struct {
	Format int    `json:"format"`
	Name   string `json:"name"` // of the part: a file's name, or layer/ID
	Size   int64  `json:"size"` // of the file, in bytes
	// Frames is the blob with the frames.
	Frames hub.Descriptor `json:"frames"`
	Origin hub.Origin     `json:"origin"`
}

// Create makes the folder of a file in root. size is the size of the content. The folder exists whole or not at all.
func Create(root string, id layer.ID, spec Spec, t *hub.Table) (err error) {
	spec.Format, spec.Size = format, t.Content()
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, id.String())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := durable.WriteFile(filepath.Join(dir, tableFile), t.Encode()); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, layer.PartialData), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = f.Truncate(t.Content()); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, specFile), b); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(dir), durable.SyncDir(root))
}

// readSpec reads and checks a folder's description and table.
func readSpec(dir string) (Spec, *hub.Table, error) {
	var s Spec
	b, err := durable.ReadFile(filepath.Join(dir, specFile), maxSpecBytes)
	if err != nil {
		return s, nil, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, nil, fmt.Errorf("decode %s: %w", specFile, err)
	}
	if s.Format != format {
		return s, nil, fmt.Errorf("%s has format %d, this forkd reads format %d", specFile, s.Format, format)
	}
	if b, err = durable.ReadFile(filepath.Join(dir, tableFile), maxTable); err != nil {
		return s, nil, err
	}
	t, err := hub.DecodeTable(b)
	if err == nil && (t.Content() != s.Size || t.BlobBytes() != s.Frames.Size) {
		err = fmt.Errorf("%s describes %d bytes in %d, %s %d in %d", tableFile, t.Content(), t.BlobBytes(), specFile,
			s.Size, s.Frames.Size)
	}
	return s, t, err
}

// Progress is the state of a file.
type Progress struct {
	Done, Total int64 // bytes of the blob
	Complete    bool  // whole and verified
}

// Read returns the progress of the file with the ID as it was last recorded. The error wraps fs.ErrNotExist if there
// is no such file.
func Read(root string, id layer.ID) (Progress, error) {
	dir := filepath.Join(root, id.String())
	_, t, err := readSpec(dir)
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Total: t.BlobBytes(), Complete: layer.PartialComplete(dir)}
	if p.Complete {
		p.Done = p.Total
		return p, nil
	}
	have, err := readBits(dir, len(t.Frames))
	if err != nil {
		return Progress{}, err
	}
	for i := range t.Frames {
		if have.has(i) {
			p.Done += t.Chunk(i).Bytes
		}
	}
	return p, nil
}

// IDs returns the files in root.
func IDs(root string) ([]layer.ID, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []layer.ID
	for _, e := range entries {
		id, bad := layer.ParseID(e.Name())
		if bad != nil {
			continue
		}
		if _, absent := os.Lstat(filepath.Join(root, e.Name(), specFile)); absent == nil {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Describe returns the description of the file with the ID.
func Describe(root string, id layer.ID) (Spec, error) {
	s, _, err := readSpec(filepath.Join(root, id.String()))
	return s, err
}

// Same reports whether the file with the ID has that table.
func Same(root string, id layer.ID, t *hub.Table) bool {
	b, err := durable.ReadFile(filepath.Join(root, id.String(), tableFile), maxTable)
	return err == nil && bytes.Equal(b, t.Encode())
}
