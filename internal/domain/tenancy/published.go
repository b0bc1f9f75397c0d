package tenancy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/snapshot"
	"github.com/forkd/forkd/internal/sys/durable"
)

const (
	publishedFormat = 1
	maxPublished    = 4 << 20 // bytes of the file
)

// Published lists the snapshots that all tenants may fork, by tag and content hash: if a tag is reused for
// another snapshot, that one is not public. The list is a separate file because a snapshot's manifest is
// immutable. A nil Published is empty.
type Published struct {
	path string

	mu   sync.Mutex // guards tags; held while the file is written
	tags map[string]string
}

// publishedFile is the whole file; see docs/inside/formats/keys.md.
type publishedFile struct {
	Format int               `json:"format"`
	Tags   map[string]string `json:"tags"` // content hash by tag
}

// OpenPublished reads the file at path. The file may be missing.
func OpenPublished(path string) (*Published, error) {
	p := &Published{path: path, tags: map[string]string{}}
	b, err := durable.ReadFile(path, maxPublished)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		p.tags, err = decodePublished(b)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return p, nil
}

func decodePublished(b []byte) (map[string]string, error) {
	var f publishedFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	if f.Format != publishedFormat {
		return nil, fmt.Errorf("format is %d, want %d", f.Format, publishedFormat)
	}
	for tag, hash := range f.Tags {
		if snapshot.CheckTag(tag) != nil || hash == "" {
			return nil, fmt.Errorf("%.80q is no tag, or its snapshot is not named", tag)
		}
	}
	if f.Tags == nil {
		f.Tags = map[string]string{}
	}
	return f.Tags, nil
}

// Has reports whether the snapshot with this tag and content is public.
func (p *Published) Has(tag, contentHash string) bool {
	if p == nil || contentHash == "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tags[tag] == contentHash
}

func (p *Published) set(tag, contentHash string, public bool) error {
	if p == nil {
		return sandbox.Errorf(sandbox.ErrUnsupported, "", "this daemon has no file for published snapshots")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := maps.Clone(p.tags)
	delete(next, tag)
	if public {
		next[tag] = contentHash
	}
	b, err := json.MarshalIndent(publishedFile{publishedFormat, next}, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Rewrite(p.path, append(b, '\n')); err != nil {
		return fmt.Errorf("write published snapshots: %w", err)
	}
	p.tags = next
	return nil
}
