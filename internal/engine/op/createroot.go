package op

import (
	"context"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/store/snapshot"
)

// takeRoot takes the root disk into the snapshot before the parent boots from it. An
// image's is the image store's and never written again, so another name for it does.
// One that was given by path is its owner's, who may write to it at any time: the
// parent, its children and the snapshot have a copy of this moment.
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
