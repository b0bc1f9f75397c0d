package secrets

import (
	"errors"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/secretid"
)

// Source is a store as the engine uses it.
type Source struct{ Store *Store }

var _ sandbox.SecretSource = Source{}

// Value implements sandbox.SecretSource.
func (s Source) Value(tenant, name string) (secretid.Secret, string, error) {
	found, value, err := s.Store.Value(tenant, name)
	switch {
	case errors.Is(err, ErrNoKey):
		err = sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonSecretsOff, "%w", err)
	case errors.Is(err, ErrNotFound):
		err = sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonSecretNotFound, "%w", err)
	case err != nil:
		err = sandbox.Errorf(sandbox.ErrConflict, sandbox.ReasonSecretUnreadable, "%w", err)
	}
	if err != nil {
		return secretid.Secret{}, "", sandbox.Detailed(err, "secret", sandbox.Clip(name))
	}
	return secretid.Secret{Name: found.Name, ID: found.ID, Version: found.Version}, string(value), nil
}

// Void implements sandbox.SecretSource.
func (s Source) Void(of secretid.Secret) bool { return s.Store.Void(of.ID, of.Version) }

// Follow implements sandbox.SecretSource.
func (s Source) Follow(told func(tenant string)) { s.Store.Follow(told) }
