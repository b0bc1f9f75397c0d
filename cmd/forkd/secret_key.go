//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/domain/secrets"
)

// madeSecretsKey is the result of secret generate-key.
type madeSecretsKey struct {
	File string `json:"file"`
}

func newSecretKeyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "generate-key FILE",
		Short: "Make the key that encrypts a daemon's secrets",
		Long: "Make the key that encrypts a daemon's secrets, for `forkd serve --secrets-key FILE`. Only this user\n" +
			"can read the file. An existing file stays. Keep a copy of the key apart from the daemon's data:\n" +
			"without it the secrets are lost.",
		Example: "  forkd secret generate-key /etc/forkd/secrets.key",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := secrets.NewKeyFile(args[0]); err != nil {
				return exit.UsageError{Err: err}
			}
			if a.JSON {
				return a.Value(madeSecretsKey{args[0]})
			}
			a.Note("start the daemon with --secrets-key %s", args[0])
			return nil
		},
	}
}
