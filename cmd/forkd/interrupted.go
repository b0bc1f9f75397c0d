package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// interruption is the error of an interrupted command, with the remaining objects.
type interruption struct{ left string }

func (i interruption) Error() string { return "interrupted; " + i.left }

// Is reports that an interruption matches context.Canceled.
func (i interruption) Is(target error) bool { return target == context.Canceled }

const nothingMade = "nothing was made"

// sayInterrupted describes an interruption its command has not described.
func sayInterrupted(cmd *cobra.Command, err error) error {
	var told interruption
	if !errors.Is(err, context.Canceled) {
		return err
	}
	if errors.As(err, &told) {
		return told
	}
	left := ""
	if cmd != nil {
		left = leftBy(strings.TrimPrefix(cmd.CommandPath(), "forkd "))
	}
	if left == "" {
		return errInterrupted
	}
	return interruption{left}
}

// errInterrupted is for read-only commands.
var errInterrupted = fmt.Errorf("interrupted%w", silent{context.Canceled})

// silent is an error with an empty text.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// leftBy returns the possible leftovers of a command, if they are always the same.
func leftBy(command string) string {
	switch command {
	case "exec":
		return "the program and all it started are killed"
	case "run":
		return "the program is killed and its sandbox ended, unless --keep was given"
	case "demo":
		return "the sandboxes are ended; its image and snapshot stay for the next time"
	case "eval":
		return "the code may still run in the sandbox"
	case "kill":
		return "`forkd ps` lists the sandboxes"
	case "snapshot rm", "snapshot compact", "snapshot create":
		return "`forkd snapshot ls` lists the snapshots"
	case "image rm", "image build":
		return "`forkd image ls` lists the images"
	case "fork", "branch":
		return "`forkd ps` and `forkd snapshot ls` list the current ones"
	case "rollback", "pause", "resume":
		return "`forkd inspect ID` shows whether it was done"
	case "pool":
		return "`forkd pool` shows the pools"
	}
	return ""
}

// lookTime limits the daemon's answer about the result of an interrupted request, which the daemon
// rolls back.
const lookTime = 5 * time.Second

// unlessMade adds the remaining objects to the error of an interrupted request. look returns an
// object that was made nevertheless, or "". The daemon rolls back unfinished work, so unlessMade
// asks again while an object exists.
func unlessMade(ctx context.Context, err error, look func(context.Context) (made string, _ error)) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	made := ""
	for {
		now, lookErr := look(ctx)
		switch {
		case lookErr != nil && made == "":
			return err // the result is unknown; the command's text says where to look
		case lookErr != nil:
			return interruption{made + ": it was made all the same"}
		case now == "":
			return interruption{nothingMade}
		}
		made = now
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// whatBecame replaces the interruption of a pause or a resume by the state of its sandbox, once the
// state is final.
func whatBecame(ctx context.Context, err error, c *client.Client, id string) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	last := api.SandboxStatus("")
	for {
		sb, lookErr := c.Sandbox(ctx, id)
		switch {
		case client.IsNotFound(lookErr):
			return interruption{"sandbox " + id + " is not there any more"}
		case lookErr != nil && last == "":
			return err // the command's text says where to look
		case lookErr != nil:
			return interruption{fmt.Sprintf("sandbox %s is still %s; `forkd inspect %s` shows its status", id, last, id)}
		case sb.Status != api.SandboxPausing && sb.Status != api.SandboxResuming:
			return interruption{fmt.Sprintf("sandbox %s is %s", id, sb.Status)}
		}
		last = sb.Status
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// madeSnapshot looks for a snapshot by its tag.
func madeSnapshot(c *client.Client, tag string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		_, err := c.Snapshot(ctx, tag)
		if client.IsNotFound(err) {
			return "", nil
		}
		return "snapshot " + tag, err
	}
}

// madeBranch looks for a snapshot of a sandbox, younger than the request.
func madeBranch(c *client.Client, id, tag string, began time.Time) func(context.Context) (string, error) {
	if tag != "" {
		return madeSnapshot(c, tag)
	}
	return func(ctx context.Context) (string, error) {
		list, err := c.ListSnapshots(ctx)
		var names []string
		for _, s := range list {
			if s.BranchedFrom != nil && *s.BranchedFrom == id && s.CreatedAtUnix >= began.Unix() {
				names = append(names, s.Tag)
			}
		}
		return named("snapshot", names), err
	}
}

// madeSandboxes looks for children of a snapshot, younger than the request.
func madeSandboxes(c *client.Client, tag string, began time.Time) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		list, err := c.ListSandboxes(ctx)
		var names []string
		for _, sb := range list {
			if sb.SnapshotTag == tag && sb.Status == api.SandboxRunning && sb.CreatedAtUnix >= began.Unix() {
				names = append(names, sb.ID)
			}
		}
		return named("sandbox", names), err
	}
}

func named(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return what + " " + strings.Join(names, ", ")
}
