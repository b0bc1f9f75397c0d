package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newKeyCommand(a *app) *cobra.Command {
	cmd := group("key", "Make, list, revoke and rotate API keys", newKeyCreateCommand(a), newKeyLsCommand(a),
		newKeyRevokeCommand(a), newKeyRotateCommand(a))
	cmd.Aliases = []string{"keys"}
	return cmd
}

func newKeyCreateCommand(a *app) *cobra.Command {
	var req api.CreateKeyRequest
	var expires time.Duration
	var file string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key, and print its text once",
		Long: "Make an API key, and print its text. The text cannot be shown again, because the daemon stores\n" +
			"only its hash. Without --tenant the key belongs to the operator and sees all tenants. Clients send\n" +
			"the key in FORKD_TOKEN, or as X-API-KEY. With --file no daemon is asked: the key is for all\n" +
			"daemons with --keys-file FILE.\n\n" +
			"  read   list and show\n" +
			"  run    run programs and code, transfer files, use ports\n" +
			"  fork   make and end sandboxes and snapshots\n" +
			"  admin  manage keys and pools",
		Example: "  forkd key create ci --tenant acme --scope read,run,fork --sandboxes 50 --forks-per-minute 300\n" +
			"  FORKD_TOKEN=$(forkd key create -q ci --tenant acme --scope read)",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			if expires < 0 || expires > 0 && expires < time.Second {
				return exit.UsageError{Err: fmt.Errorf("--expires is %s, want 0 or at least 1s", expires)}
			}
			req.ExpiresSecs = int64(expires / time.Second)
			if file != "" {
				return createKeyInFile(a, file, req)
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				k, err := c.CreateKey(ctx, req)
				if err != nil {
					return err
				}
				return printNewKey(a, k)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", "",
		"add the key to `FILE` instead of the daemon, for daemons with --keys-file FILE (default: none)")
	f.StringVar(&req.Tenant, "tenant", "",
		"make the key for the tenant `NAME`: 1 to 24 lowercase letters, digits or _ (default: the operator)")
	f.StringSliceVar(&req.Scopes, "scope", []string{"read", "run", "fork"},
		"grant `SCOPE`: read, run, fork, admin or layers; may be repeated")
	f.DurationVar(&expires, "expires", 0, "expire the key after `DURATION`; 0: never")
	f.StringSliceVar(&req.HostPorts, "host-port", nil,
		"allow the tenant's policies to name host `PORT`, or FIRST-LAST, as host.forkd.internal; may be "+
			"repeated (default: none)")
	section(f, "Quotas", func(f *pflag.FlagSet) {
		f.IntVar(&req.Quotas.Sandboxes, "sandboxes", 0, "limit the tenant to `N` sandboxes at a time; 0: no limit")
		f.IntVar(&req.Quotas.MemoryMiB, "memory-mib", 0,
			"limit the guest memory of the tenant's sandboxes to `MIB` in total; 0: no limit")
		f.IntVar(&req.Quotas.ForksPerMinute, "forks-per-minute", 0,
			"limit the tenant to `N` children per minute; 0: no limit")
		f.IntVar(&req.Quotas.DiskMiB, "disk-mib", 0,
			"limit the tenant's snapshots and sandbox disks to `MIB` in total; 0: no limit")
		f.IntVar(&req.Quotas.RequestsPerSecond, "rate", 0, "limit the key to `N` requests per second; 0: no limit")
	})
	return cmd
}

// printNewKey prints only the key's text on standard output, for scripts.
func printNewKey(a *app, k api.NewKey) error {
	if a.JSON {
		return a.Value(k)
	}
	a.Note("key %s (%s): its text is shown this once", k.ID, k.Name)
	_, err := fmt.Fprintln(a.Out, k.Text)
	return err
}

func newKeyLsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the keys, without their texts",
		Args:    cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			list, err := c.ListKeys(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			return a.Table([]string{"ID", "NAME", "TENANT", "SCOPES", "QUOTAS", "STATUS", "AGE", "USED"},
				keyRows(list, time.Now()))
		}),
	}
}

func keyRows(list []api.Key, now time.Time) [][]string {
	var rows [][]string
	for _, k := range list {
		used := "never"
		if k.LastUsedUnix != nil {
			used = ui.Age(time.Unix(*k.LastUsedUnix, 0), now) + " ago"
		}
		tenant := k.Tenant
		if tenant == "" {
			tenant = "-"
		}
		rows = append(rows, []string{k.ID, k.Name, tenant, strings.Join(k.Scopes, ","), quotaText(k.Quotas), k.Status,
			ui.Age(time.Unix(k.CreatedUnix, 0), now), used})
	}
	return rows
}

// quotaText describes the quotas of a key.
func quotaText(q api.KeyQuotas) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{q.Sandboxes, "%d sandboxes"}, {q.MemoryMiB, "%d MiB"}, {q.ForksPerMinute, "%d forks/min"},
		{q.DiskMiB, "%d MiB on disk"},
		{q.RequestsPerSecond, "%d requests/s"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf(p.what, p.n))
		}
	}
	if parts == nil {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func newKeyRevokeCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke KEY...",
		Short: "Revoke keys",
		Long: "Revoke keys permanently. KEY is an ID or a name in the output of `forkd key ls`. Sandboxes and\n" +
			"snapshots made with a key stay.",
		Example: "  forkd key revoke ci",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			out := []api.Key{}
			for _, arg := range args {
				id, err := keyNamed(ctx, c, arg)
				if err != nil {
					return err
				}
				k, err := c.RevokeKey(ctx, id)
				if err != nil {
					return err
				}
				a.Note("key %s (%s) is revoked", k.ID, k.Name)
				out = append(out, k)
			}
			if a.JSON {
				return a.Value(out)
			}
			return nil
		}),
	}
}

func newKeyRotateCommand(a *app) *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:     "rotate KEY",
		Short:   "Replace a key's text, and print the new one once",
		Example: "  forkd key rotate ci --grace 1h",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace < 0 || grace > api.MaxKeyGraceSecs*time.Second {
				return exit.UsageError{Err: fmt.Errorf("--grace is %s, want 0 to %s", grace, api.MaxKeyGraceSecs*time.Second)}
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				id, err := keyNamed(ctx, c, args[0])
				if err != nil {
					return err
				}
				k, err := c.RotateKey(ctx, id, api.RotateKeyRequest{GraceSecs: int64(grace / time.Second)})
				if err != nil {
					return err
				}
				return printNewKey(a, k)
			})
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", 0, "accept the old text for `DURATION`; 0: revoke it now")
	return cmd
}

// keyNamed returns the ID of a key, given by its ID or by its name if exactly one active key has
// the name.
func keyNamed(ctx context.Context, c *client.Client, name string) (string, error) {
	list, err := c.ListKeys(ctx)
	if err != nil {
		return "", err
	}
	var found []string
	for _, k := range list {
		if k.ID == name {
			return name, nil
		}
		if k.Name == name && k.Status == "active" {
			found = append(found, k.ID)
		}
	}
	switch len(found) {
	case 0:
		return "", &client.Error{Code: api.CodeNotFound,
			Message: fmt.Sprintf("no active key has the id or the name %.80q", name)}
	case 1:
		return found[0], nil
	}
	return "", exit.UsageError{Err: fmt.Errorf("several keys are named %s: give the id, %s", name,
		strings.Join(found, " or "))}
}
