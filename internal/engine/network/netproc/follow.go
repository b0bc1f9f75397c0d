package netproc

import (
	"context"
	"path/filepath"

	"github.com/forkd/forkd/internal/netd/control"
)

// Follow calls handle with each audit line of all VMs that forkd-net writes from now on, until ctx
// or the process ends.
func Follow(ctx context.Context, runDir string, handle func(control.Line)) error {
	c, err := control.Dial(ctx, filepath.Join(runDir, dirName, socketName))
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Follow(ctx, "", handle)
}
