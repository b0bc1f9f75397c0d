package op

import (
	"context"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/store/snapshot"
)

// takeRoot puts the root disk into the snapshot before the parent boots from it. The image store
// owns an image's root disk and never writes it again, so a hard link is enough. A disk given by
// path belongs to the caller, who may write to it at any time. The parent, its children and the
// snapshot therefore use a copy made now.
func (c *createOp) takeRoot(ctx context.Context) error {
	from, err := os.Open(c.src.image.Root)
	if err != nil {
		return err
	}
	defer from.Close()
	name := snapshot.DiskFile(0)
	if c.src.image.Digest != "" {
		return c.draft.Adopt(ctx, name, from)
	}
	if err := c.draft.Copy(ctx, name, from); err != nil {
		return err
	}
	c.src.image.Root = filepath.Join(c.draft.Dir(), name)
	return nil
}
