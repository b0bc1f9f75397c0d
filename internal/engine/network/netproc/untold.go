package netproc

import (
	"context"
	"path/filepath"

	"github.com/forkd/forkd/internal/net/netd/control"
)

// Untold returns forkd-net's refusals to all VMs since the previous call. It returns an error if
// forkd-net does not run.
func Untold(ctx context.Context, runDir string) (control.Untold, error) {
	c, err := control.Dial(ctx, filepath.Join(runDir, dirName, socketName))
	if err != nil {
		return control.Untold{}, err
	}
	defer c.Close()
	return c.Untold(ctx)
}
