package diskratio

import (
	"context"
	"testing"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
)

func TestHoweverItEndsNothingIsLeft(t *testing.T) {
	measuretest.InterruptEach(t, func(ctx context.Context, d *measuretest.Daemon) error {
		_, err := Run(ctx, Config{Client: d.Client, Floors: measuretest.Floors(), Tag: "py", MiB: 1, RandomOps: 1, Rounds: 1})
		return err
	})
}
