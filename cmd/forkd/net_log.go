package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newNetLogCommand(a *app) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "log ID",
		Short: "Print a sandbox's refused connections",
		Long: "Print a sandbox's last refused connections, with the reason. With --follow also print connections\n" +
			"as they end or are refused, until the sandbox ends. With --json each line is a JSON object.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().ids(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			return c.NetworkLog(ctx, args[0], follow, func(line []byte) error { return printLogLine(&a.Printer, line) })
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new connections")
	return cmd
}

// logLine holds the fields of a log line for people.
type logLine struct {
	Time     time.Time `json:"time"`
	Verdict  string    `json:"verdict"`
	Protocol string    `json:"protocol"`
	Name     string    `json:"name"`
	Far      string    `json:"far"`
	Rule     string    `json:"rule"`
	Reason   string    `json:"reason"`
	Count    int       `json:"count"`
	BytesIn  int64     `json:"bytes_in"`
	BytesOut int64     `json:"bytes_out"`
	Seconds  float64   `json:"seconds"`
}

func printLogLine(a *ui.Printer, line []byte) error {
	var l logLine
	if err := json.Unmarshal(line, &l); err != nil && (!a.JSON || a.Format.Given()) {
		return fmt.Errorf("read the network log: %w", err)
	}
	if a.JSON {
		return a.ValueLine(line, l)
	}
	_, err := fmt.Fprintln(a.Out, ui.Clean(l.text()))
	return err
}

// text returns one line. Names and reasons in it may be text of a guest.
func (l logLine) text() string {
	parts := []string{l.Time.UTC().Format(time.RFC3339), l.Verdict, l.Protocol}
	if l.Far != "" {
		parts = append(parts, l.Far)
	}
	if l.Name != "" {
		parts = append(parts, l.Name)
	}
	if l.Rule != "" {
		parts = append(parts, "by "+l.Rule)
	}
	if l.Count > 1 {
		parts = append(parts, fmt.Sprintf("%d times", l.Count))
	}
	if l.BytesIn > 0 || l.BytesOut > 0 {
		parts = append(parts, fmt.Sprintf("sent %s, received %s", ui.Bytes(l.BytesOut), ui.Bytes(l.BytesIn)))
	}
	if l.Seconds > 0 {
		parts = append(parts, ui.Duration(time.Duration(l.Seconds*float64(time.Second))))
	}
	if l.Reason != "" {
		parts = append(parts, "("+l.Reason+")")
	}
	return strings.Join(parts, "  ")
}
