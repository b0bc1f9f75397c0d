package netproc

import (
	"context"
	"path/filepath"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// Untold takes what forkd-net has refused to all VMs since it was last asked. One that does not run has
// refused nothing.
func Untold(ctx context.Context, runDir string) (control.Untold, error) {
	c, err := control.Dial(ctx, filepath.Join(runDir, dirName, socketName))
	if err != nil {
		return control.Untold{}, err
	}
	defer c.Close()
	return c.Untold(ctx)
}
