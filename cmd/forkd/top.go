package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newTopCommand(a *app) *cobra.Command {
	var once, all bool
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the sandboxes' resource use, continuously",
		Long: "Show the sandboxes' resource use continuously, busiest first. CPU is in percent of one CPU. USE is\n" +
			"the host memory counted against the limit, with page cache. HELD is the share of time in which the\n" +
			"CPU limit throttled the sandbox. NET MAX/S is the bandwidth limit in each direction.\n\n" +
			"With --json each sample is a document. On a narrow terminal columns are omitted, unless --no-trunc\n" +
			"is given.",
		Example: "  forkd top\n  forkd top --once --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < minTopInterval {
				return exit.UsageError{Err: fmt.Errorf("--interval is %s, want at least %s", every, minTopInterval)}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				t := top{Printer: &a.Printer, daemon: c, every: every, once: once, all: all}
				t.print = t.show
				return t.run(ctx)
			})
		},
	}
	addNoTrunc(cmd, &all)
	cmd.Flags().BoolVar(&once, "once", false, "print one sample and exit")
	cmd.Flags().DurationVar(&every, "interval", time.Second, "take a sample every `DURATION`")
	return cmd
}

const minTopInterval = 100 * time.Millisecond

// top is one run of the command, or of stats.
type top struct {
	*ui.Printer
	daemon *client.Client
	every  time.Duration
	once   bool
	all    bool                 // do not cut columns
	only   []string             // IDs of the sandboxes; empty for all
	print  func([]topRow) error // prints a sample
}

// run shows a table for each interval, until ctx ends.
func (t top) run(ctx context.Context) error {
	before, err := look(ctx, t.daemon)
	if err != nil {
		return err
	}
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now, err := look(ctx, t.daemon)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		now.list = t.named(now.list)
		if err := t.print(busiest(before, now)); err != nil || t.once || t.ended(now.list) {
			return err
		}
		before = now
	}
}

// observed is the list of sandboxes at one moment.
type observed struct {
	at   time.Time
	list []api.SandboxInfo
}

func look(ctx context.Context, c *client.Client) (observed, error) {
	list, err := c.ListSandboxes(ctx)
	return observed{time.Now(), list}, err
}

// topRow is one sandbox in top. Its JSON form is part of the CLI's contract.
type topRow struct {
	ID               string  `json:"id"`
	SnapshotTag      string  `json:"snapshot_tag"`
	Status           string  `json:"status"`
	CPUPercent       float64 `json:"cpu_percent"`
	CPULimit         float64 `json:"cpus,omitempty"`
	HeldPercent      float64 `json:"held_percent"`
	MemoryBytes      int64   `json:"memory_bytes"`
	MemoryPeakBytes  int64   `json:"memory_peak_bytes"`
	MemoryLimitBytes int64   `json:"memory_limit_bytes,omitempty"`
	Threads          int     `json:"threads"`
	DiskReadPerSec   int64   `json:"disk_read_bytes_per_sec"`
	DiskWritePerSec  int64   `json:"disk_written_bytes_per_sec"`
	NetInPerSec      int64   `json:"net_in_bytes_per_sec"`
	NetOutPerSec     int64   `json:"net_out_bytes_per_sec"`
	NetLimitPerSec   int64   `json:"net_limit_bytes_per_sec,omitempty"`
	// The totals are of the time since the VM was started.
	DiskRead    int64 `json:"disk_read_bytes"`
	DiskWritten int64 `json:"disk_written_bytes"`
	NetIn       int64 `json:"net_in_bytes"`
	NetOut      int64 `json:"net_out_bytes"`
}

// busiest returns the activity of sandboxes between two observations, sorted by CPU time, highest
// first.
func busiest(before, now observed) []topRow {
	was := map[string]api.SandboxUse{}
	for _, sb := range before.list {
		if sb.Use != nil {
			was[sb.ID] = *sb.Use
		}
	}
	took := now.at.Sub(before.at).Seconds()
	rows := []topRow{}
	for _, sb := range now.list {
		if sb.Use == nil {
			continue // it has ended, or the host does not account for it
		}
		row := rowOf(sb)
		if old, ok := was[sb.ID]; ok && took > 0 && old.CPUMS <= sb.Use.CPUMS { // otherwise it has another VM since
			row.CPUPercent = (sb.Use.CPUMS - old.CPUMS) / took / 10
			row.HeldPercent = (sb.Use.ThrottledMS - old.ThrottledMS) / took / 10
			row.DiskReadPerSec = int64(float64(sb.Use.DiskReadBytes-old.DiskReadBytes) / took)
			row.DiskWritePerSec = int64(float64(sb.Use.DiskWrittenBytes-old.DiskWrittenBytes) / took)
			row.NetInPerSec = int64(float64(max(0, sb.Use.NetInBytes-old.NetInBytes)) / took)
			row.NetOutPerSec = int64(float64(max(0, sb.Use.NetOutBytes-old.NetOutBytes)) / took)
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(b.CPUPercent, a.CPUPercent), cmp.Compare(b.MemoryBytes, a.MemoryBytes))
	})
	return rows
}

func rowOf(sb api.SandboxInfo) topRow {
	row := topRow{ID: sb.ID, SnapshotTag: sb.SnapshotTag, Status: string(sb.Status), CPULimit: sb.CPUs,
		MemoryBytes: sb.Use.MemoryBytes, MemoryPeakBytes: sb.Use.MemoryPeakBytes, Threads: sb.Use.Threads,
		NetLimitPerSec: sb.Use.NetLimitBytes, DiskRead: sb.Use.DiskReadBytes, DiskWritten: sb.Use.DiskWrittenBytes,
		NetIn: sb.Use.NetInBytes, NetOut: sb.Use.NetOutBytes}
	if sb.MemoryLimitMiB != nil {
		row.MemoryLimitBytes = int64(*sb.MemoryLimitMiB) << 20
	}
	return row
}

func (t top) show(rows []topRow) error {
	if t.JSON {
		return t.Value(rows)
	}
	rows, err := t.page(rows)
	if err != nil {
		return err
	}
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{r.ID, r.SnapshotTag, percent(r.CPUPercent), cpuLimit(r.CPULimit),
			percent(r.HeldPercent), ui.Bytes(r.MemoryBytes), bytesLimit(r.MemoryLimitBytes), ui.Bytes(r.MemoryPeakBytes),
			fmt.Sprint(r.Threads), ui.Bytes(r.DiskReadPerSec), ui.Bytes(r.DiskWritePerSec),
			ui.Bytes(r.NetInPerSec), ui.Bytes(r.NetOutPerSec), bytesLimit(r.NetLimitPerSec)})
	}
	head := []string{"ID", "SNAPSHOT", "CPU", "CPUS", "HELD", "USE", "LIMIT", "PEAK", "THREADS", "READ/S", "WRITE/S",
		"NET IN/S", "NET OUT/S", "NET MAX/S"}
	if t.all {
		return t.Table(head, cells)
	}
	return t.FittedTable(head, cells, ui.Fit{Cut: []string{"SNAPSHOT"}, Drop: []string{"NET MAX/S", "PEAK", "CPUS", "HELD",
		"THREADS", "LIMIT", "NET OUT/S", "NET IN/S", "WRITE/S", "READ/S"}})
}

// screenRows returns the number of rows on the screen for sandboxes, below the header and above the
// cursor.
func screenRows(out io.Writer) int {
	const unknown = 22
	f, ok := out.(*os.File)
	if !ok {
		return unknown
	}
	_, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return unknown
	}
	return max(1, height-2)
}

func percent(v float64) string { return fmt.Sprintf("%.0f%%", v) }

func cpuLimit(cpus float64) string {
	if cpus == 0 {
		return ""
	}
	return fmt.Sprintf("%g", cpus)
}

func bytesLimit(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return ui.Bytes(bytes)
}
