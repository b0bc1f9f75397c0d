package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/peers"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

// peerOptions holds the flags of `forkd-bench peers`.
type peerOptions struct {
	peers.Config
	n    int
	here bool // only the peers, on this host: set when this program runs itself on the VMs' host
	plot string
}

// contest is the result of `forkd-bench peers --json` (docs/inside/formats/json-output.md).
type contest struct {
	Rows  []peers.Row `json:"peers"`
	Where string      `json:"where"`
	CPUs  int         `json:"cpus,omitempty"`
}

func newPeersCommand(a *app) *cobra.Command {
	o := peerOptions{}
	cmd := &cobra.Command{
		Use:   "peers [TAG]",
		Short: "Race forks with containers, gVisor and Firecracker, on the same host in the same run",
		Long: "Race forks of TAG (default: pyagent, made if need be) with what else gives isolated guests: runc, crun, gVisor's runsc\n" +
			"(containers created, and restored from a checkpoint) and Firecracker (restored from a snapshot of an image of forkd's).\n" +
			"Each makes guests, as many at once as there are CPUs, and asks the Python in each for a first answer. They run where\n" +
			"the VMs run, on this host or in the machine, from a root tree with Python (--peer-root), in which their programs may\n" +
			"lie, too. Who cannot run is listed with the reason.\n\n" + exitCodes,
		Example: "  mmdebstrap --variant=extract --include=python3-minimal,runc,crun,runsc bookworm root\n" +
			"  forkd-bench peers --peer-root root --plot peers.svg\n" +
			"  forkd-bench peers --peer-root root --firecracker ./firecracker --image ~/.cache/forkd/built/python-numpy",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.n < 1 {
				return exit.UsageError{Err: errors.New("--count is at least 1")}
			}
			c, err := a.peers(cmd.Context(), o, args)
			if err != nil {
				return err
			}
			if err := a.writePlot(o.plot, peers.Plot(c.Rows), c.Where, c.CPUs); err != nil {
				return err
			}
			if a.JSON {
				return a.Value(c)
			}
			return a.printPeers(c)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&o.n, "count", "n", 8, "guests of each")
	f.StringVar(&o.Root, "peer-root", "", "root tree with Python, for the peers' guests and programs")
	f.StringVar(&o.Firecracker, "firecracker", "", "Firecracker's program")
	f.StringVar(&o.Image, "image", "", "directory of an image of forkd's, for Firecracker's guests")
	f.IntVar(&o.MemoryMiB, "memory-mib", 256, "memory of Firecracker's guests in MiB")
	f.StringVar(&o.plot, "plot", "", "write the figures as an SVG to this file")
	f.BoolVar(&o.here, "here", false, "race the peers only, on this host; no daemon is asked")
	return cmd
}

func (a *app) peers(ctx context.Context, o peerOptions, args []string) (contest, error) {
	if o.here {
		rows, err := a.peersHere(ctx, o)
		return contest{Rows: rows, Where: string(endpoint.Host), CPUs: runtime.NumCPU()}, err
	}
	b, err := a.open(ctx)
	if err != nil {
		return contest{}, err
	}
	defer b.Close()
	tag, err := a.tag(ctx, args)
	if err != nil {
		return contest{}, err
	}
	c := contest{Where: b.where, CPUs: b.cpus}
	for _, pool := range []int{o.n, 0} {
		a.Note("forkd, %d shells ready", pool)
		row, err := peers.Forkd(ctx, peers.ForkdConfig{Client: b.client, Floors: b.floors, Tag: tag, N: o.n, Pool: pool})
		if err != nil {
			return contest{}, err
		}
		c.Rows = append(c.Rows, row)
	}
	rows, err := a.peersBeside(ctx, b, o)
	c.Rows = append(c.Rows, rows...)
	return c, err
}

// peersBeside races the peers on the host of the daemon's VMs.
func (a *app) peersBeside(ctx context.Context, b bench, o peerOptions) ([]peers.Row, error) {
	switch {
	case b.where == string(endpoint.Machine):
		return a.peersInMachine(ctx, o)
	case b.floors.Known():
		return a.peersHere(ctx, o)
	}
	a.Note("there are no peers: the host of the VMs is not known")
	return nil, nil
}

func (a *app) peersHere(ctx context.Context, o peerOptions) (_ []peers.Row, err error) {
	all, done, err := peers.All(o.Config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	return peers.Race(ctx, all, o.n, a.say)
}

func (a *app) printPeers(c contest) error {
	var table [][]string
	for _, r := range c.Rows {
		if r.OK == 0 {
			table = append(table, []string{r.Peer, "", "", "", "", "", "", r.Reason})
			continue
		}
		kib := func(v int64) string { return ui.Bytes(max(0, v) << 10) }
		table = append(table, []string{
			r.Peer, fmt.Sprintf("%d of %d", r.OK, r.N), ui.Millis(r.StartedP50MS), ui.Millis(r.StartedMS),
			ui.Millis(r.AnsweredP50MS), ui.Millis(r.AnsweredMS), kib(r.PSSKiB), r.Reason,
		})
	}
	head := []string{"PEER", "GUESTS", "STARTED P50", "LAST", "ANSWERED P50", "LAST", "PSS", "NOTE"}
	if err := a.Table(head, table); err != nil {
		return err
	}
	a.Note("%s", place(c.Where, c.CPUs))
	return nil
}
