package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/usage"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/sys/diskbench"
)

func newFloorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "floor",
		Short: "Measure what this host can do at best, without a daemon",
		Long: "Measure what this host can do at best. No daemon is asked, and nothing is left. The other commands\n" +
			"run this where the VMs run: on this host, or in the machine.\n\n" + exitCodes,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFloorVMsCommand(a), newFloorCopyCommand(a), newFloorDiskCommand(a), newFloorHostCommand(a),
		newFloorUsageCommand(a), newFloorBulkCommand())
	return cmd
}

func newFloorVMsCommand(a *app) *cobra.Command {
	var device, dir string
	var n, memory int
	cmd := &cobra.Command{
		Use:   "vms",
		Short: "Make VMs by nothing but the ioctls that the kernel demands",
		Long: "Make VMs by nothing but the ioctls that the kernel demands, on as many threads as there are CPUs, and run each\n" +
			"to its first exit. They map one file copy-on-write, as children of a snapshot do.",
		Example: "  forkd-bench floor vms -n 100 --memory-mib 256",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			took, err := floor.OverFile(device, dir, n, memory)
			return a.took(took, err)
		},
	}
	f := cmd.Flags()
	f.StringVar(&device, "kvm", "/dev/kvm", "the KVM device")
	f.StringVar(&dir, "dir", "",
		"directory for the file that is mapped as memory (default: the system's for temporary files)")
	f.IntVarP(&n, "count", "n", 100, "number of VMs, 1 to 1000")
	f.IntVar(&memory, "memory-mib", 256, "memory of each in MiB")
	return cmd
}

func newFloorCopyCommand(a *app) *cobra.Command {
	var bytes int64
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Copy bytes in memory",
		Long: "Copy bytes between two buffers that were touched before: " +
			"the least that a pause which copies them can take.",
		Example: "  forkd-bench floor copy --bytes 1048576",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			took, err := floor.Copy(bytes)
			return a.took(took, err)
		},
	}
	cmd.Flags().Int64Var(&bytes, "bytes", 64<<20, "bytes to copy, at most 1 GiB")
	return cmd
}

// took prints a duration.
func (a *app) took(took time.Duration, err error) error {
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.Value(floor.Took{WallMS: measure.Millis(took)})
	}
	return a.Line("%s", ui.Duration(took))
}

func newFloorDiskCommand(a *app) *cobra.Command {
	var cfg diskbench.Config
	cmd := &cobra.Command{
		Use:   "disk",
		Short: "Write and read a file, one after another and at random places",
		Long: "Write and read a file, one after another and at random places, with an fsync at the end of each writing. What the\n" +
			"kernel has of the file in memory is dropped before each part. The file is removed.",
		Example: "  forkd-bench floor disk --dir /var/lib/forkd",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := diskbench.Run(cfg)
			switch {
			case err != nil:
				return fmt.Errorf("measure the disk of %s: %w", cfg.Dir, err)
			case a.JSON:
				return a.Value(f)
			}
			return a.Facts(
				"sequential write", fmt.Sprintf("%.0f MiB/s", f.SequentialWriteMiBPerS),
				"sequential read", fmt.Sprintf("%.0f MiB/s", f.SequentialReadMiBPerS),
				"random write", fmt.Sprintf("%.0f /s", f.RandomWritesPerS),
				"random read", fmt.Sprintf("%.0f /s", f.RandomReadsPerS),
			)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Dir, "dir", ".", "directory for the file")
	f.IntVar(&cfg.MiB, "mib", 64, "size of the file in MiB")
	f.IntVar(&cfg.RandomOps, "ops", 2000, "blocks of 4 KiB written, and read, at random places")
	return cmd
}

func newFloorHostCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "host",
		Short:   "Read how much memory new processes can have",
		Example: "  forkd-bench floor host --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			h, err := floor.ReadHost()
			switch {
			case err != nil:
				return err
			case a.JSON:
				return a.Value(h)
			}
			return a.Facts("available memory", ui.Bytes(h.MemAvailableKiB<<10))
		},
	}
}

func newFloorUsageCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "usage",
		Short: "Read what each VMM has used: CPU time, VM exits, page faults of its guest",
		Long: "Read what each VMM has used since it was started: CPU time by /proc, VM exits and page faults of its guest by KVM's\n" +
			"counters (in debugfs, which root mounts for the time if need be).",
		Example: "  forkd-bench floor usage",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := usage.Read()
			switch {
			case err != nil:
				return fmt.Errorf("read what VMMs have used: %w", err)
			case a.JSON:
				return a.Value(list)
			}
			rows := make([][]string, 0, len(list))
			for _, v := range list {
				exits, faults := "-", "-"
				if v.Counters != nil {
					exits, faults = fmt.Sprintf("%.0f", v.Exits), fmt.Sprintf("%.0f", v.GuestFaults)
				}
				rows = append(rows, []string{fmt.Sprint(v.PID), ui.Millis(v.UserMS), ui.Millis(v.SystemMS), exits, faults})
			}
			return a.Table([]string{"PID", "USER", "SYSTEM", "VM EXITS", "GUEST FAULTS"}, rows)
		},
	}
}
