package chainbench

import (
	"context"
	"testing"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
)

func TestHoweverItEndsNothingIsLeft(t *testing.T) {
	measuretest.InterruptEach(t, func(ctx context.Context, d *measuretest.Daemon) error {
		_, err := Run(ctx, Config{Client: d.Client, Tag: "py", Depths: []int{1, 2}, N: 2, Rounds: 1, StepMiB: 1, Crowd: 2, CrowdDepth: 2})
		return err
	})
}
