package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// e2bTemplates returns the templates that E2B's packages use by default: e2b and
// e2b_code_interpreter.
func e2bTemplates() []string { return []string{"base", "code-interpreter-v1"} }

func newE2BUpCommand(a *app) *cobra.Command {
	var bare bool
	cmd := &cobra.Command{
		Use:   "up [TEMPLATE...]",
		Short: "Make templates for E2B's clients, and print their variables",
		Long: "Make the image and the snapshot of each template, by default base and code-interpreter-v1, and print\n" +
			"the variables of `forkd e2b env`. Existing images and snapshots are used, so the command can be\n" +
			"repeated at any time. Steps and their times go to standard error. After an interruption, the next\n" +
			"run continues from there.",
		Example: "  eval \"$(forkd e2b up)\"\n  forkd e2b up base --dotenv > .env",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = e2bTemplates()
			}
			return e2bUp(cmd.Context(), a, args, bare)
		},
	}
	cmd.Flags().BoolVar(&bare, "dotenv", false, "print lines for a .env file")
	return cmd
}

// e2bUpReport is the result of `forkd e2b up --json`.
type e2bUpReport struct {
	e2bVariables
	Templates []e2bTemplate `json:"templates"`
	TotalSecs float64       `json:"total_s"`
}

// e2bTemplate describes how a template came to be. Times of steps that were not needed are 0.
type e2bTemplate struct {
	Name         string  `json:"name"`
	Image        string  `json:"image,omitempty"` // name of the snapshot's image
	ImageSecs    float64 `json:"image_s,omitempty"`
	SnapshotSecs float64 `json:"snapshot_s,omitempty"`
}

// e2bUp finds the variables first: without them, images would be built in vain.
func e2bUp(ctx context.Context, a *app, templates []string, bare bool) error {
	began := time.Now()
	c, e, err := a.daemon(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	report := e2bUpReport{}
	if report.e2bVariables, err = e2bVariablesOf(ctx, c, e); err != nil {
		return err
	}
	for n, name := range templates {
		a.Note("template %s (%d of %d)", name, n+1, len(templates))
		t, err := makeTemplate(ctx, a, c, name)
		if err != nil {
			return err
		}
		report.Templates = append(report.Templates, t)
	}
	report.TotalSecs = time.Since(began).Seconds()
	if a.JSON {
		return a.Value(report)
	}
	a.Note("ready after %s", rounded(time.Since(began)))
	return printVariables(a, report.e2bVariables, bare)
}

// makeTemplate makes a template's snapshot unless there is one of that name, of any image.
func makeTemplate(ctx context.Context, a *app, c *client.Client, name string) (t e2bTemplate, err error) {
	t.Name = name
	old, err := c.Snapshot(ctx, name)
	switch {
	case err == nil && old.Status == api.SnapshotReady:
		a.Note("snapshot %s is there already", name)
		t.Image = old.Image
		return t, nil
	case err == nil && old.Status == api.SnapshotFailed:
		why := "it failed"
		if old.Warning != nil {
			why = *old.Warning
		}
		a.Note("snapshot %s is made anew: %s", name, why)
		if err := c.DeleteSnapshot(ctx, name, client.DeleteOptions{}); err != nil {
			return t, err
		}
	case err != nil && !client.IsNotFound(err):
		return t, err
	}
	began := time.Now()
	img, err := a.ensureImage(ctx, c, name)
	if err != nil {
		return t, err
	}
	t.Image, t.ImageSecs = img.Name, time.Since(began).Seconds()
	a.Note("image %s: %s", name, rounded(time.Since(began)))
	began = time.Now()
	if _, err := a.createSnapshot(ctx, c, api.CreateSnapshotRequest{Tag: name, Image: name}); err != nil {
		return t, err
	}
	t.SnapshotSecs = time.Since(began).Seconds()
	a.Note("snapshot %s: %s", name, rounded(time.Since(began)))
	return t, nil
}

// rounded returns a time for people.
func rounded(d time.Duration) time.Duration {
	if d > time.Minute {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}
