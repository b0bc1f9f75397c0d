//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/endpoint"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/domain/idtoken"
)

// newIdentityKey is the result of identity rotate.
type newIdentityKey struct {
	Key     string `json:"key"`     // id of the new key
	Revoked bool   `json:"revoked"` // the earlier keys have left the key set
}

func newIdentityCommand(a *app) *cobra.Command {
	return group("identity", "Keys that sign the identity tokens of sandboxes",
		newIdentityShowCommand(a), newIdentityRotateCommand(a))
}

func newIdentityShowCommand(a *app) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "List the keys of identity tokens",
		Long: "List the keys in the data directory of a daemon on this host. The last one signs; earlier ones stay\n" +
			"in the daemon's /.well-known/jwks.json until their last token has expired.",
		Example: "  forkd identity show --data /var/lib/forkd",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := identityDir(data)
			if err != nil {
				return err
			}
			keys, err := idtoken.Keys(dir, time.Now())
			if err != nil {
				return noIdentity(dir, err)
			}
			if a.JSON {
				return a.Value(keys)
			}
			rows := [][]string{}
			for _, k := range keys {
				until := "in use"
				if !k.Until.IsZero() {
					until = "until " + k.Until.Format(time.RFC3339)
				}
				rows = append(rows, []string{k.ID, k.Created.Format(time.RFC3339), until})
			}
			return a.Table([]string{"KEY", "CREATED", "STATE"}, rows)
		},
	}
	addIdentityData(cmd, &data)
	return cmd
}

func newIdentityRotateCommand(a *app) *cobra.Command {
	var data string
	var revoke bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Make a new key for identity tokens",
		Long: "Make a new key in the data directory of a daemon on this host. A running daemon signs its next token\n" +
			"with it. Tokens of the earlier key stay valid until they expire. With --revoke they become invalid\n" +
			"as soon as services fetch the keys again, within about five minutes: use it for a stolen key.",
		Example: "  forkd identity rotate --data /var/lib/forkd\n  forkd identity rotate --revoke",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, err := identityDir(data)
			if err != nil {
				return err
			}
			id, err := idtoken.Rotate(dir, time.Now(), revoke)
			if err != nil {
				return noIdentity(dir, err)
			}
			if a.JSON {
				return a.Value(newIdentityKey{id, revoke})
			}
			a.Note("new identity tokens are signed with key %s", id)
			return nil
		},
	}
	addIdentityData(cmd, &data)
	cmd.Flags().BoolVar(&revoke, "revoke", false, "remove the earlier keys from the key set now")
	return cmd
}

func addIdentityData(cmd *cobra.Command, data *string) {
	cmd.Flags().StringVar(data, "data", "",
		"use the keys in `DIR`, the daemon's --data (default: /var/lib/forkd, or in the home directory)")
}

// identityDir returns the directory of the keys.
func identityDir(data string) (string, error) {
	if data == "" {
		paths, err := endpoint.DefaultPaths()
		if err != nil {
			return "", err
		}
		data = paths.Data
	}
	return filepath.Join(data, identityFolder), nil
}

func noIdentity(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return exit.UsageError{Err: fmt.Errorf("%s has no keys: a daemon makes the first one when it starts with "+
			"--identity-issuer", dir)}
	}
	return err
}
