package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
	"github.com/forkd/forkd/internal/leaf/labels"
	"github.com/forkd/forkd/internal/leaf/retention"
)

func newSnapshotPinCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "pin TAG...",
		Short:             "Keep snapshots from expiry and deletion",
		Long:              "Pin snapshots. They do not expire, and `forkd snapshot rm` deletes them with --force only.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			return a.ended("pinned", args, eachTag(ctx, c, args, client.PinSnapshot))
		}),
	}
}

func newSnapshotUnpinCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "unpin TAG...",
		Short:             "Undo `forkd snapshot pin`",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.complete().tags(),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			return a.ended("unpinned", args, eachTag(ctx, c, args, client.UnpinSnapshot))
		}),
	}
}

func eachTag(ctx context.Context, c *client.Client, tags []string,
	do func(context.Context, *client.Client, string) (api.SnapshotInfo, error)) []error {
	errs := make([]error, len(tags))
	for i, tag := range tags {
		_, errs[i] = do(ctx, c, tag)
	}
	return errs
}

func newSnapshotExpireCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "expire TAG DURATION|TIME|never",
		Short: "Set when a snapshot expires",
		Long: "Set the end of a snapshot: a duration from now, a time in RFC 3339, or never. The daemon removes an\n" +
			"expired snapshot within two minutes. It keeps a snapshot that is pinned, published, or in use.",
		Example: "  forkd snapshot expire nightly 24h\n  forkd snapshot expire nightly 2026-12-31T00:00:00Z\n" +
			"  forkd snapshot expire nightly never",
		ValidArgsFunction: a.complete().tags(),
		Args:              cobra.ExactArgs(2),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			if args[1] != "never" && retention.Check(map[string]string{retention.Expires: args[1]}) != nil {
				return exit.UsageError{Err: fmt.Errorf("%q: want a duration such as 24h, a time such as "+
					"2026-12-31T00:00:00Z, or never", args[1])}
			}
			info, err := client.ExpireSnapshot(ctx, c, args[0], args[1])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(info)
			}
			a.Note("snapshot %s: %s", info.Tag, kept(info, time.Now()))
			return nil
		}),
	}
}

// kept describes how long a snapshot is kept.
func kept(s api.SnapshotInfo, now time.Time) string {
	switch {
	case s.Pinned:
		return "pinned"
	case s.ExpiresAt != nil && *s.ExpiresAt <= now.Unix():
		return "expired"
	case s.ExpiresAt != nil:
		return ui.Age(now, time.Unix(*s.ExpiresAt, 0)) + " left"
	case s.Labels[retention.KeepLast] != "" && s.Labels[retention.KeepLast] != retention.All:
		return "last " + s.Labels[retention.KeepLast]
	}
	return "-"
}

// pinned is empty for a snapshot that is not pinned.
func pinned(s api.SnapshotInfo) string {
	if !s.Pinned {
		return ""
	}
	return "yes"
}

// expiry is empty for a snapshot without one.
func expiry(s api.SnapshotInfo) string {
	if s.ExpiresAt == nil {
		return ""
	}
	return time.Unix(*s.ExpiresAt, 0).UTC().Format(time.RFC3339)
}

// retentionFlags are the flags of commands that make snapshots. They set labels.
type retentionFlags struct {
	pin             bool
	expire, lineage string
	keepLast        int
}

func (r *retentionFlags) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&r.pin, "pin", false, "pin the snapshot: it does not expire")
	f.StringVar(&r.expire, "expire", "", "remove the snapshot after `DURATION`, or at a time in RFC 3339; never: not even by the daemon's default")
	f.StringVar(&r.lineage, "lineage", "", "name the series for --keep-last `NAME` (default: the sandbox)")
	f.IntVar(&r.keepLast, "keep-last", 0, "keep the newest `N` snapshots of the lineage, and remove older ones")
}

// labels returns the labels with those of the flags.
func (r *retentionFlags) labels(set map[string]string) (map[string]string, error) {
	more := map[string]string{}
	if r.pin {
		more[retention.Pin] = "true"
	}
	if r.expire != "" {
		more[retention.Expires] = r.expire
	}
	if r.lineage != "" {
		more[retention.Lineage] = r.lineage
	}
	if r.keepLast != 0 {
		more[retention.KeepLast] = strconv.Itoa(r.keepLast)
	}
	if err := retention.Check(more); err != nil {
		return nil, exit.UsageError{Err: err}
	}
	return labels.Merge(set, more), nil
}
