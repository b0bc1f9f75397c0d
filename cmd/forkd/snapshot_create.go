package main

import (
	"context"
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
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Boot an image, warm it up, and keep it as a snapshot; or run a command on top of one",
		Long: "Boot an image, warm it up, and keep it as a snapshot. With --from: fork a child of that snapshot, run a command and warm-up\n" +
			"code in it, and keep what became of it as a snapshot on top, which holds only what differs. If the command " +
			"fails nothing is kept.",
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
	f.StringVarP(&req.Tag, "tag", "t", "", "name of the snapshot")
	f.StringVarP(&req.Image, "image", "i", "",
		"name of an image, or a container image's reference with a registry or a tag")
	f.StringVar(&req.From, "from", "", "snapshot to build on, instead of an image")
	f.StringVar(&shell, "exec", "", "command to run in a child of it, for sh -c")
	f.StringVar(&req.ExecUser, "user", "", "user to run the command as (default: the image's)")
	f.DurationVar(&limit, "exec-timeout", 0, "limit for the command (default: 10m)")
	f.StringVar(&req.Kernel, "kernel", "", "kernel on the daemon's host, instead of an image")
	f.StringVar(&req.Rootfs, "rootfs", "", "root image on the daemon's host, with --kernel")
	f.IntVar(&req.MemoryMiB, "memory-mib", 0, "memory of the guest (default: the recipe's)")
	f.IntVar(&req.VCPUs, "vcpus", 0, "virtual CPUs of the guest (default: the recipe's)")
	f.StringVar(&req.Warm, "warm", "",
		"Python code to run before the snapshot, after the recipe's own warm-up or the command")
	f.StringVar(&warmFile, "warm-file", "", "the same from a file")
	f.DurationVar(&warmLimit, "warm-timeout", 0, "limit for the warm-up (default: 10m)")
	f.DurationVar(&wait, "boot-wait", 0, "limit for the guest to get ready, at most 60s (default: the daemon's)")
	network.addFlags(cmd, "none, or that of --from")
	f.StringVar(&buildNet, "build-net", "",
		"what may be reached while the snapshot is made, and not later: none or public (default: as --net)")
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
