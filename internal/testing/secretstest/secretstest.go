// Package secretstest opens a store of secrets for a test. It knows no tenants and no secrets.
//
// Start reading at Open.
package secretstest

import (
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/domain/secrets"
)

// Open opens the store DIR/secrets with the new key DIR/secrets.key.
func Open(t testing.TB, dir string) *secrets.Store {
	t.Helper()
	path := filepath.Join(dir, "secrets.key")
	if err := secrets.NewKeyFile(path); err != nil {
		t.Fatal(err)
	}
	key, err := secrets.ReadKeyFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	store, err := secrets.Open(secrets.Config{Dir: filepath.Join(dir, "secrets"), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return store
}
