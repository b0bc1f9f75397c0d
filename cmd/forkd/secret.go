package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/cmd/internal/ui"
)

func newSecretCommand(a *app) *cobra.Command {
	cmd := group("secret", "Set, list and remove secrets for sandboxes", newSecretSetCommand(a), newSecretLsCommand(a),
		newSecretRmCommand(a), newSecretKeyCommand(a))
	cmd.Aliases = []string{"secrets"}
	return cmd
}

// maxSecret is the largest value of a secret, in bytes.
const maxSecret = 64 << 10

func secretTenant(f *pflag.FlagSet, tenant *string) {
	f.StringVar(tenant, "tenant", "", "use the secrets of tenant `NAME`; for the operator (default: the caller's)")
}

func newSecretSetCommand(a *app) *cobra.Command {
	var file, tenant string
	var metadata []string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Make a secret, or rotate it to a new value",
		Long: "Make a secret, or rotate it to a new value. The value is read from a file or standard input, never\n" +
			"from the command line, which other users of the host can see. One newline at its end is dropped.\n" +
			"The value cannot be shown again.\n\n" +
			"Network policies use the new value at once. A sandbox with the secret in its environment gets it\n" +
			"when it is next resumed or rolled back.",
		Example: "  forkd secret set OPENAI_API_KEY < key.txt\n  forkd secret set TOKEN --value-file token",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.SetSecretRequest{}
			var err error
			if metadata != nil {
				if req.Metadata, err = environment(metadata); err != nil {
					return err
				}
			}
			if req.Value, err = secretValue(a, file); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				secrets := c.Secrets()
				secrets.Tenant = tenant
				set, err := secrets.Set(ctx, args[0], req)
				if err != nil {
					return err
				}
				if a.JSON {
					return a.Value(set)
				}
				a.Note("secret %s has version %d", set.Name, set.Version)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "value-file", "", "read the value from `FILE` (default: standard input)")
	f.StringArrayVar(&metadata, "metadata", nil,
		"store `NAME=VALUE` with the secret, readable by all who can list it; may be repeated")
	secretTenant(f, &tenant)
	return cmd
}

// secretValue reads a value. Its errors do not contain it.
func secretValue(a *app, file string) (string, error) {
	b, err := readSecret(a, file)
	if err != nil {
		return "", err
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	switch {
	case value == "":
		return "", exit.UsageError{Err: errors.New("the value is empty")}
	case len(value) > maxSecret:
		return "", exit.UsageError{Err: fmt.Errorf("the value has more than %d bytes", maxSecret)}
	case !utf8.ValidString(value):
		return "", exit.UsageError{Err: errors.New("the value is not UTF-8 text: encode it, for example with base64")}
	}
	return value, nil
}

// readSecret reads a value from a file, a terminal without echo, or another standard input.
func readSecret(a *app, file string) ([]byte, error) {
	in := os.Stdin
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, exit.UsageError{Err: fmt.Errorf("--value-file: %w", err)}
		}
		defer f.Close()
		in = f
	} else if fd := int(in.Fd()); term.IsTerminal(fd) {
		fmt.Fprint(a.Err, "Value: ")
		b, err := term.ReadPassword(fd)
		fmt.Fprintln(a.Err)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(in, maxSecret+3)) // a value at the limit may have a line's end
	if err != nil {
		return nil, fmt.Errorf("read the value: %w", err)
	}
	return b, nil
}

func newSecretLsCommand(a *app) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the secrets, without their values",
		Args:    cobra.NoArgs,
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			secrets := c.Secrets()
			secrets.Tenant = tenant
			list, err := secrets.List(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Value(list)
			}
			return a.Table([]string{"NAME", "VERSION", "AGE", "UPDATED"}, secretRows(list, time.Now()))
		}),
	}
	secretTenant(cmd.Flags(), &tenant)
	return cmd
}

func secretRows(list []api.Secret, now time.Time) [][]string {
	var rows [][]string
	for _, s := range list {
		if s.Damage != "" {
			rows = append(rows, []string{s.Name, "unreadable", "-", "-"})
			continue
		}
		rows = append(rows, []string{s.Name, fmt.Sprint(s.Version), ui.Age(time.Unix(s.CreatedUnix, 0), now),
			ui.Age(time.Unix(s.UpdatedUnix, 0), now) + " ago"})
	}
	return rows
}

func newSecretRmCommand(a *app) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove secrets",
		Long: "Remove secrets. Requests of sandboxes for which a network policy adds a removed secret are refused.\n" +
			"Running programs keep an environment variable that has the value; new forks with it are refused.",
		Args: cobra.MinimumNArgs(1),
		RunE: a.onDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			secrets := c.Secrets()
			secrets.Tenant = tenant
			for _, name := range args {
				if err := secrets.Remove(ctx, name); err != nil {
					return err
				}
				a.Note("secret %s is removed", name)
			}
			if a.JSON {
				return a.Value(args)
			}
			return nil
		}),
	}
	secretTenant(cmd.Flags(), &tenant)
	return cmd
}

// secretFlags are the flags of commands that give secrets to sandboxes.
type secretFlags struct{ list []string }

func (s *secretFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.list, "secret", nil,
		"set environment variable NAME, or VARIABLE, of the new sandboxes to the value of a secret, "+
			"`NAME[:VARIABLE]`; may be repeated")
}

// refs returns the secrets for a request.
func (s *secretFlags) refs() (out []api.SecretRef, err error) {
	for _, text := range s.list {
		name, variable, given := strings.Cut(text, ":")
		if name == "" || given && variable == "" || strings.Contains(text, "=") {
			return nil, exit.UsageError{Err: errors.New("--secret: want NAME or NAME:VARIABLE, without a value")}
		}
		out = append(out, api.SecretRef{Name: name, Env: variable})
	}
	return out, nil
}
