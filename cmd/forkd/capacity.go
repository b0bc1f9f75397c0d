package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newCapacityCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "capacity",
		Short: "Show the host's resources, and the share promised to sandboxes",
		Long: "Show the host's resources for sandboxes.\n\n" +
			"FREE is available to new sandboxes; it excludes RESERVE. PROMISED is the most that running\n" +
			"sandboxes may use: the memory and disks of their guests, or their limits if lower. AT MOST is the\n" +
			"limit of PROMISED.\n\n" +
			"PRESSURE is the share of the last 10 s in which work waited for the resource. From FEWER FROM on,\n" +
			"fewer sandboxes are started at a time. From NONE FROM on, new sandboxes are refused.",
		Args: cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			cap, err := c.Capacity(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(cap)
			}
			return printCapacity(&a.Printer, cap)
		}),
	}
}

func printCapacity(a *ui.Printer, c api.Capacity) error {
	var rows [][]string
	for _, r := range c.Resources {
		show := func(n int64) string { return amount(r.Resource, n) }
		rows = append(rows, []string{r.Resource, show(r.Total), show(r.Free), show(r.Reserve),
			unlessZero(r.Promised, show), unlessZero(r.MayPromise, show)})
	}
	if err := a.Table([]string{"RESOURCE", "TOTAL", "FREE", "RESERVE", "PROMISED", "AT MOST"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, p := range c.Pressure {
		rows = append(rows, []string{p.Resource, percent(p.Some), unlessZero(p.Fewer, percent),
			unlessZero(p.None, percent)})
	}
	if err := a.Line("%s", ""); err != nil {
		return err
	}
	if err := a.Table([]string{"PRESSURE", "NOW", "FEWER FROM", "NONE FROM"}, rows); err != nil {
		return err
	}
	a.Note("sandboxes running: %d, starting: %d; admission: %s%s",
		c.Sandboxes, c.Coming, ui.Clean(string(c.Admits)), usedUp(c))
	return nil
}

// usedUp returns the names of the resources used up.
func usedUp(c api.Capacity) string {
	var names []string
	for _, r := range c.Resources {
		if r.Total > 0 && r.Free == 0 {
			names = append(names, ui.Clean(r.Resource))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", for lack of " + strings.Join(names, " and ")
}

// amount returns a size in bytes, or a number.
func amount(resource string, n int64) string {
	if resource == "memory" || resource == "disk" {
		return ui.Bytes(n)
	}
	return fmt.Sprint(n)
}

func unlessZero[T int64 | float64](v T, show func(T) string) string {
	if v == 0 {
		return ""
	}
	return show(v)
}
