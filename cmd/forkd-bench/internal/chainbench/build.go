package chainbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// step writes the changes of each snapshot of the chain: so many MiB of memory, in a file in the
// guest's /dev/shm, and the same on the disk.
const step = `set -e
dd if=/dev/urandom of=/dev/shm/bench-%[1]d bs=1M count=%[2]d 2>/dev/null
dd if=/dev/urandom of=/var/tmp/bench-%[1]d bs=1M count=%[2]d conv=fsync 2>/dev/null`

// chain holds the tags by depth. The first snapshot existed before.
type chain struct {
	tags []string
	made []string // by this run
}

// build makes the missing snapshots. It reuses the snapshots of an earlier run with Keep, if they
// are still built on one another.
func (c Config) build(ctx context.Context, deepest int) (ch chain, err error) {
	ch.tags = []string{c.Tag}
	for depth := 1; depth <= deepest; depth++ {
		below := ch.tags[depth-1]
		tag := fmt.Sprintf("%s-chain%d", c.Tag, depth)
		if len(tag) > maxTag {
			return ch, fmt.Errorf("tag %s is too long for the chain's own, %s", c.Tag, tag)
		}
		there, err := c.reusable(ctx, tag, below)
		if err != nil {
			return ch, err
		}
		if !there {
			c.Say(fmt.Sprintf("making depth %d of %d", depth, deepest))
			req := api.CreateSnapshotRequest{
				Tag: tag, From: below, Exec: []string{"sh", "-c", fmt.Sprintf(step, depth, c.StepMiB)}, ExecUser: "root",
			}
			_, err := c.Client.CreateSnapshot(ctx, req, nil)
			// A conflict means another owner. An interrupted request may have made the snapshot.
			if err == nil || client.CodeOf(err) != api.CodeConflict {
				ch.made = append(ch.made, tag)
			}
			if err != nil {
				return ch, err
			}
		}
		ch.tags = append(ch.tags, tag)
	}
	return ch, nil
}

// Build builds a chain on a snapshot and returns the tag of its deepest. Each step writes
// DefaultStepMiB.
func Build(ctx context.Context, c *client.Client, tag string, depth int) (deepest string, err error) {
	ch, err := Config{Client: c, Tag: tag, StepMiB: DefaultStepMiB, Say: func(string) {}}.build(ctx, depth)
	if err != nil {
		return "", err
	}
	return ch.tags[depth], nil
}

// DefaultStepMiB is the default number of MiB written by a step.
const DefaultStepMiB = 4

// maxTag is the maximum length of a tag.
const maxTag = 64

func (c Config) reusable(ctx context.Context, tag, below string) (bool, error) {
	info, err := c.Client.Snapshot(ctx, tag)
	if client.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	parent, err := c.Client.Snapshot(ctx, below)
	if err != nil {
		return false, err
	}
	same := info.ParentTag != nil && *info.ParentTag == below && info.ParentContentHash != nil &&
		*info.ParentContentHash == parent.ContentHash
	if !same || info.Status != api.SnapshotReady {
		return false, fmt.Errorf("snapshot %s is there and not what this bench makes: delete it (forkd snapshot rm "+
			"--cascade %s)", tag, tag)
	}
	return true, nil
}

// remove deletes this run's snapshots, the deepest first.
func (c Config) remove(ctx context.Context, ch chain) error {
	var errs []error
	for i := len(ch.made) - 1; i >= 0; i-- {
		errs = append(errs, measure.Delete(ctx, c.Client, ch.made[i], client.DeleteOptions{}))
	}
	return errors.Join(errs...)
}
