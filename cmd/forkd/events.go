package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newEventsCommand(a *app) *cobra.Command {
	var req client.EventsRequest
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow the daemon's events",
		Long: "Print the daemon's events as they happen, one per line: sandboxes that start, fail and end,\n" +
			"snapshots, pools, policies, and requests refused for lack of resources.\n\n" +
			"With --json each line is an Event with an id. With --since-id, the events after this id are\n" +
			"printed first. If some of them are gone, an event of kind gap comes before them.",
		Example: "  forkd events\n  forkd events --sandbox sb-5f3a0012-0001 --json\n" +
			"  forkd events --kind sandbox.failed,snapshot. --filter label=job=7",
		Args: cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			if req.All && req.After > 0 {
				return exit.UsageError{Err: errors.New("--all and --since-id exclude each other")}
			}
			return c.Events(ctx, req, func(e api.Event) error { return printEvent(&a.Printer, e) })
		}),
	}
	f := cmd.Flags()
	f.Uint64Var(&req.After, "since-id", 0, "start after the event with this `ID`; 0: with new events")
	f.BoolVar(&req.All, "all", false, "start with the oldest event in the daemon's buffer")
	f.StringVar(&req.Sandbox, "sandbox", "", "filter by sandbox `ID`")
	f.StringVar(&req.Snapshot, "snapshot", "", "filter by snapshot `TAG`")
	f.StringSliceVar(&req.Kinds, "kind", nil, "filter by `KIND`, or by prefix if it ends in '.'; may be repeated")
	f.StringArrayVarP(&req.Filters, "filter", "f", nil,
		"print only events of objects with the label in `label=KEY[=VALUE]`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("sandbox", a.complete().ids())
	return cmd
}

func printEvent(p *ui.Printer, e api.Event) error {
	if p.JSON {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		return p.ValueLine(line, e)
	}
	_, err := fmt.Fprintln(p.Out, ui.Clean(eventText(e)))
	return err
}

// eventText returns one line. A reason in it may be text of a guest.
func eventText(e api.Event) string {
	parts := []string{e.Time.UTC().Format(time.RFC3339), e.Kind}
	if e.Sandbox != "" {
		parts = append(parts, e.Sandbox)
	}
	if e.Snapshot != "" {
		parts = append(parts, "snapshot "+e.Snapshot)
	}
	if e.Owner != "" {
		parts = append(parts, "of "+e.Owner)
	}
	for _, key := range slices.Sorted(maps.Keys(e.Detail)) {
		if key != "reason" {
			parts = append(parts, key+" "+e.Detail[key])
		}
	}
	if reason := e.Detail["reason"]; reason != "" {
		parts = append(parts, "("+reason+")")
	}
	return strings.Join(parts, "  ")
}
