package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newImageInspectCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "inspect NAME",
		Short:             "Show an image in the daemon's store, with its source and its default program",
		Example:           "  forkd image inspect py312 --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.complete().images(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			img, err := c.Image(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(img)
			}
			return a.Facts(imageFacts(img)...)
		}),
	}
}

func imageFacts(i api.Image) []string {
	facts := []string{
		"name", i.Name, "digest", i.Digest, "size", ui.Bytes(i.SizeBytes), "kernel", i.KernelVersion,
		"created", time.Unix(i.CreatedAtUnix, 0).UTC().Format(time.RFC3339), "description", i.Description,
		"service", i.Start,
	}
	c := i.Container
	if c == nil {
		return facts
	}
	facts = append(facts, "source", c.Reference, "source digest", c.Digest, "entrypoint", quoted(c.Entrypoint),
		"cmd", quoted(c.Cmd), "user", c.User, "workdir", c.Workdir,
		"exposed ports", strings.Join(c.ExposedPorts, " "), "stop signal", c.StopSignal)
	if c.Healthcheck != nil {
		facts = append(facts, "health check", quoted(c.Healthcheck.Test))
	}
	return facts
}

// quoted shows where arguments begin and end.
func quoted(args []string) string {
	var all []string
	for _, a := range args {
		all = append(all, strconv.Quote(a))
	}
	return strings.Join(all, " ")
}
