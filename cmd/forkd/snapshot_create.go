package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newSnapshotCreateCommand(a *app) *cobra.Command {
	var req api.CreateSnapshotRequest
	var warmFile, shell string
	var wait, limit, warmLimit time.Duration
	var network netFlags
	var buildNet string
	var labelled *labelFlag
	var rules retentionFlags
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a snapshot: boot an image, or run a command on a snapshot",
		Long: "Boot an image, warm it up, and save it as a snapshot.\n\n" +
			"With --from fork a child of a snapshot, run a command and warm-up code in it, and save it as a\n" +
			"snapshot on top. The new snapshot stores only the differences. If the command fails, no snapshot\n" +
			"is made.",
		Example: "  forkd snapshot create --image python-numpy --tag pyagent\n  forkd snapshot create --image python-numpy --tag mine --warm-file warm.py\n" +
			"  forkd snapshot create --from pyagent --exec 'apt-get install -y jq' --user root --tag with-jq",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeCreate(&req, warmFile, wait); err != nil {
				return err
			}
			if cmd.Flags().Changed("exec-timeout") && limit <= 0 {
				return exit.UsageError{Err: fmt.Errorf("--exec-timeout is %s, want more than 0", limit)}
			}
			if cmd.Flags().Changed("warm-timeout") && warmLimit <= 0 {
				return exit.UsageError{Err: fmt.Errorf("--warm-timeout is %s, want more than 0", warmLimit)}
			}
			req.WarmTimeoutSecs = warmLimit.Seconds()
			policy, err := network.policy()
			if err != nil {
				return err
			}
			if buildNet != "" && buildNet != string(api.NetNone) && buildNet != string(api.NetPublic) {
				return exit.UsageError{Err: fmt.Errorf("--build-net %q: want none or public", buildNet)}
			}
			req.Network, req.BuildNet = policy, api.Net(buildNet)
			if rules.keepLast != 0 && rules.lineage == "" {
				return exit.UsageError{Err: errors.New("--keep-last needs --lineage: such a snapshot has no sandbox")}
			}
			if req.Labels, err = rules.labels(labelled.set); err != nil {
				return err
			}
			if shell != "" {
				req.Exec, req.ExecTimeoutSecs = []string{"/bin/sh", "-c", shell}, limit.Seconds()
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				req.Image, err = containers{a}.ensureReference(ctx, c, req.Image)
				if err != nil {
					return err
				}
				info, err := a.createSnapshot(ctx, c, req)
				if err != nil {
					return err
				}
				if a.JSON {
					return a.Value(info)
				}
				return a.Line("%s", info.Tag)
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&req.Tag, "tag", "t", "", "name the snapshot `TAG`")
	f.StringVarP(&req.Image, "image", "i", "", "boot the image `NAME`, or a container image by its reference")
	f.StringVar(&req.From, "from", "", "build on the snapshot `TAG`")
	f.StringVar(&shell, "exec", "", "run `COMMAND` with sh -c in a child of --from")
	f.StringVar(&req.ExecUser, "user", "", "run the command as `USER` (default: the image's)")
	f.DurationVar(&limit, "exec-timeout", 0, "stop the command after `DURATION` (default: 10m)")
	f.StringVar(&req.Kernel, "kernel", "", "boot the kernel `FILE` on the daemon's host")
	f.StringVar(&req.Rootfs, "rootfs", "", "boot --kernel with the root image `FILE` on the daemon's host")
	f.IntVar(&req.MemoryMiB, "memory-mib", 0, "give the guest `MIB` of memory (default: the recipe's)")
	f.IntVar(&req.VCPUs, "vcpus", 0, "give the guest `N` virtual CPUs (default: the recipe's)")
	f.StringVar(&req.Warm, "warm", "",
		"run Python `CODE` as the last step before the snapshot")
	f.StringVar(&warmFile, "warm-file", "", "run the Python code in `FILE` as the last step before the snapshot")
	f.DurationVar(&warmLimit, "warm-timeout", 0, "stop the warm-up after `DURATION` (default: 10m)")
	f.DurationVar(&wait, "boot-wait", 0,
		"wait up to `DURATION` for the guest to boot, at most 60s (default: the daemon's)")
	labelled = addLabelFlag(f, "the snapshot")
	rules.addFlags(f)
	network.addFlags(cmd, "none, or the policy of --from")
	f.StringVar(&buildNet, "build-net", "",
		"use network `POLICY`, none or public, while the snapshot is made (default: as --net)")
	_ = cmd.MarkFlagRequired("tag") // the only error is a flag that does not exist
	cmd.MarkFlagsMutuallyExclusive("image", "kernel", "from")
	cmd.MarkFlagsRequiredTogether("kernel", "rootfs")
	cmd.MarkFlagsOneRequired("image", "kernel", "from")
	for _, booted := range []string{"image", "kernel", "memory-mib", "vcpus", "boot-wait"} {
		cmd.MarkFlagsMutuallyExclusive(booted, "exec")
	}
	cmd.MarkFlagsMutuallyExclusive("warm", "warm-file")
	_ = cmd.RegisterFlagCompletionFunc("image", a.complete().images())
	_ = cmd.RegisterFlagCompletionFunc("from", a.complete().tags())
	return cmd
}

// completeCreate derives fields from several flags.
func completeCreate(req *api.CreateSnapshotRequest, warmFile string, wait time.Duration) error {
	if wait < 0 || wait > api.MaxBootWaitSecs*time.Second {
		return exit.UsageError{Err: fmt.Errorf("--boot-wait is %s, want at most %d s", wait, api.MaxBootWaitSecs)}
	}
	req.BootWaitSecs = int(math.Ceil(wait.Seconds()))
	if warmFile == "" {
		return nil
	}
	b, err := os.ReadFile(warmFile)
	if err != nil {
		return fmt.Errorf("read warm-up: %w", err)
	}
	req.Warm = string(b)
	return nil
}

// createSnapshot shows the steps while they happen.
func (a *app) createSnapshot(ctx context.Context, c *client.Client,
	req api.CreateSnapshotRequest) (api.SnapshotInfo, error) {
	progress := a.Progress()
	defer progress.End()
	s, err := c.CreateSnapshot(ctx, req, showStep(progress))
	return s, unlessMade(ctx, err, madeSnapshot(c, req.Tag))
}

func showStep(p *ui.Progress) func(api.Step) {
	return func(s api.Step) {
		switch {
		case s.Output != "":
			p.Output(s.Output)
		case s.Note != "":
			p.Output(s.Step + ": " + s.Note + "\n")
		case s.Done && s.Bytes > 0:
			p.Done(s.Step, ui.Millis(s.TookMS)+", "+ui.Bytes(s.Bytes))
		case s.Done:
			p.Done(s.Step, ui.Millis(s.TookMS))
		case s.Total > 0:
			p.Step(s.Step, float64(s.Bytes)/float64(s.Total))
		default:
			p.Step(s.Step, -1)
		}
	}
}
