package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/netbench"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/netnative"
	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
)

// networkFigures is the result of `forkd-bench net --json` (docs/inside/formats/json-output.md).
type networkFigures struct {
	Native []netnative.Figure `json:"native,omitempty"`
	Guests []netnative.Figure `json:"guests,omitempty"`
	N      int                `json:"n,omitempty"` // children of a fork
	Rounds int                `json:"rounds,omitempty"`
	Load   string             `json:"load,omitempty"` // one-minute load average of the command's host at the start
	Where  string             `json:"where"`
	CPUs   int                `json:"cpus,omitempty"`
}

// netOptions holds the flags of `forkd-bench net`.
type netOptions struct {
	native       netnative.Config
	guests       netbench.Config
	here, noHere bool
	plot         string
}

func newNetCommand(a *app) *cobra.Command {
	o := netOptions{native: netnative.Default()}
	cmd := &cobra.Command{
		Use:   "net [TAG]",
		Short: "Measure the network: its parts on this host, and forks, streams and branches with and without it",
		Long: "Measure the network in two parts. The first needs no guest: on this host, in network namespaces of its own,\n" +
			"Linux's TCP behind a tap stands for a guest, before its engine and a forkd-net. The second forks TAG (default: pyagent, made if need\n" +
			"be) with network and without, in turn. Streams and branches of it need a port of the daemon's host that sandboxes may\n" +
			"reach: a daemon started with --net-host-port PORT, as the machine's is with 1024-65535, and --host-port PORT here.\n\n" +
			"Each figure stands beside its floor of the same run, and beside the mark that it is to reach.\n\n" + exitCodes,
		Example:           "  forkd-bench net --here --json\n  forkd-bench net pyagent -n 9 --host-port 7070 --plot net.svg",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTags,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return exit.UsageError{Err: err}
			}
			figures, err := a.network(cmd.Context(), o, args)
			if err != nil {
				return err
			}
			plot := netbench.Plot(figures.Native, figures.Guests)
			if err := a.writePlot(o.plot, plot, figures.Where, figures.CPUs); err != nil {
				return err
			}
			if a.JSON {
				return a.Value(figures)
			}
			return a.printNetwork(figures)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.here, "here", false, "measure the parts on this host only; no daemon is asked")
	f.BoolVar(&o.noHere, "guests", false, "measure with guests only")
	f.StringVar(&o.native.Program, "net", "", "the forkd-net program (default: beside this one)")
	f.IntVar(&o.native.BulkMiB, "mib", o.native.BulkMiB, "MiB that are carried each way, in each round")
	f.IntVar(&o.native.Connects, "connects", o.native.Connects, "connections each way")
	f.IntVarP(&o.guests.N, "count", "n", 8, "children of each fork")
	f.IntVar(&o.guests.Rounds, "rounds", 9, "pairs of forks, streams and branches, at least 2")
	f.IntVar(&o.guests.Pool, "pool", -1, "shells to have ready before each fork (default: as many as children)")
	f.IntVar(&o.guests.HostPort, "host-port", 0,
		"port of the daemon's host that its --net-host-port opens; 0: no streams, no branches")
	f.StringVar(&o.plot, "plot", "", "write the figures as an SVG to this file")
	return cmd
}

func (o *netOptions) check() error {
	switch {
	case o.here && o.noHere:
		return errors.New("--here and --guests leave nothing to measure")
	case o.guests.N < 1 || o.guests.Rounds < 2 || o.native.BulkMiB < 1 || o.native.Connects < 1:
		return errors.New("--rounds is at least 2, --count, --mib and --connects at least 1")
	case o.guests.HostPort < 0 || o.guests.HostPort > 65535:
		return fmt.Errorf("--host-port: %d is no port", o.guests.HostPort)
	}
	if o.guests.Pool < 0 {
		o.guests.Pool = o.guests.N
	}
	return nil
}

func (a *app) network(ctx context.Context, o netOptions, args []string) (networkFigures, error) {
	all := networkFigures{Load: loadAverage(), Where: string(endpoint.Host), CPUs: runtime.NumCPU()}
	var err error
	if !o.noHere {
		if all.Native, err = a.networkHere(ctx, o.native); err != nil || o.here {
			return all, err
		}
	}
	b, err := a.open(ctx)
	if err != nil {
		return all, err
	}
	defer b.Close()
	all.Where, all.CPUs, all.N, all.Rounds = b.where, b.cpus, o.guests.N, o.guests.Rounds
	c := o.guests
	c.Client, c.Say = b.client, a.say
	if c.Tag, err = a.tag(ctx, args); err != nil {
		return all, err
	}
	if c.HostPort > 0 {
		stop, err := serveNear(ctx, b, c.HostPort, a.say)
		if err != nil {
			return all, err
		}
		defer stop()
	}
	all.Guests, err = netbench.Run(ctx, c)
	return all, err
}

// insideCommand is the command by which this program runs itself in a separate namespace.
const insideCommand = "net-inside"

func (a *app) networkHere(ctx context.Context, c netnative.Config) (_ []netnative.Figure, err error) {
	if c.Program == "" {
		if c.Program, err = endpoint.Program("forkd-net"); err != nil {
			return nil, err
		}
	}
	c.Say = a.say
	return netnative.Here(ctx, c, insideCommand)
}

func newNetInsideCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: insideCommand + " CONFIG", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var c netnative.Config
			if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
				return exit.UsageError{Err: err}
			}
			c.Say = a.say
			all, err := netnative.Run(cmd.Context(), c)
			if err != nil {
				return err
			}
			return a.Value(all)
		},
	}
}

// loadAverage returns the load average of the last minute, or an empty string if it is unknown.
func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(b), " ")
	return load
}

func (a *app) printNetwork(n networkFigures) error {
	var rows [][]string
	for _, f := range slices.Concat(n.Native, n.Guests) {
		rows = append(rows, networkRow(f))
	}
	if err := a.Table([]string{"FIGURE", "VALUE", "FLOOR", "BESIDE IT", "95 %", "MARK", ""}, rows); err != nil {
		return err
	}
	a.Note("%s; load %s", place(n.Where, n.CPUs), n.Load)
	return nil
}

func networkRow(f netnative.Figure) []string {
	number := func(v float64) string { return fmt.Sprintf("%.4g", v) }
	beside, interval, mark, met := "", "", "", ""
	switch f.By {
	case netnative.Ratio:
		beside = fmt.Sprintf("× %.3f", f.Result)
	case netnative.Difference:
		beside = fmt.Sprintf("%+.4g", f.Result)
	}
	if f.High > 0 {
		interval = fmt.Sprintf("%.3f to %.3f", f.Low, f.High)
	}
	switch {
	case f.AtMost > 0:
		mark = "at most " + number(f.AtMost)
	case f.AtLeast > 0:
		mark = "at least " + number(f.AtLeast)
	}
	if f.Met != nil && !*f.Met {
		met = "missed"
	}
	return []string{f.Name, number(f.Value) + " " + f.Unit, known(f.Floor, number), beside, interval, mark, met}
}

// serveNear answers guests at a port. It serves on the daemon's host, or on this host if the daemon
// is in the machine.
func serveNear(ctx context.Context, b bench, port int, say func(string)) (stop func(), err error) {
	if !b.floors.Known() {
		return nil, errors.New("--host-port: the daemon was named by its URL, and may be on another host")
	}
	serve := func(ctx context.Context) error {
		_, err := b.floors.Run(ctx, "bulk", "--port", fmt.Sprint(port))
		return err
	}
	if b.where == string(endpoint.Machine) { // for sandboxes in the machine, the host is this host
		serve = func(ctx context.Context) error { return netbench.Serve(ctx, port) }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := serve(ctx); err != nil && ctx.Err() == nil {
			say("answer at port " + fmt.Sprint(port) + ": " + err.Error())
		}
	}()
	return func() { cancel(); <-done }, nil
}

// newFloorBulkCommand returns the command to answer guests on the daemon's host.
func newFloorBulkCommand() *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use: "bulk", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return netbench.Serve(cmd.Context(), port) },
	}
	cmd.Flags().IntVar(&port, "port", 0, "port of the loopback to answer at")
	return cmd
}
