// Package secretstest opens a store of secrets with a new key in a folder of the test, so that packages do not repeat these
// steps. It knows no tenants and no secrets. Only tests may import it. The trap: each folder can have one store.
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
