//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/domain/secrets"
)

// secretsCredential is the name of systemd's credential with the key of secrets.
const secretsCredential = "forkd-secrets-key" // #nosec G101 -- a name

// openSecrets opens the store of secrets, without a change of its files: the engine holds the data directory only
// later. Without a key the store refuses every request.
func (o serveOptions) openSecrets(log *slog.Logger) (*secrets.Store, error) {
	file, key, err := o.readSecretsKey()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.data, "secrets")
	if key == nil {
		if _, err := os.Lstat(dir); err == nil {
			log.Warn("the store has secrets, but the daemon has no key for them: start it with --secrets-key FILE", "path", dir)
		}
		return secrets.Off(), nil
	}
	store, err := secrets.Open(secrets.Config{Dir: dir, Key: key, Log: log})
	if errors.Is(err, secrets.ErrOtherKey) {
		return nil, exit.UsageError{Err: fmt.Errorf("--secrets-key %s: %w", file, err)}
	}
	return store, err
}

// readSecretsKey returns the key and its file. The key is nil if the daemon has no key.
func (o serveOptions) readSecretsKey() (string, *secrets.Key, error) {
	file, credential := o.secretsKey, false
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); file == "" && dir != "" {
		file, credential = filepath.Join(dir, secretsCredential), true
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) { // #nosec G703 -- systemd names the folder
			file = ""
		}
	}
	if file == "" {
		return "", nil, nil
	}
	key, err := secrets.ReadKeyFile(file, credential)
	if err != nil {
		return "", nil, exit.UsageError{Err: fmt.Errorf("--secrets-key: %w", err)}
	}
	return file, key, nil
}
