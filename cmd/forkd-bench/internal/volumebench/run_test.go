package volumebench

import (
	"context"
	"testing"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
)

func TestHoweverItEndsNothingIsLeft(t *testing.T) {
	measuretest.InterruptEach(t, func(ctx context.Context, d *measuretest.Daemon) error {
		_, err := Run(ctx, Config{Client: d.Client, Tag: "py", Rounds: 1, CloneGiB: 1, RandomOps: 1})
		return err
	})
}
