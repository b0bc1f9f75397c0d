package sandbox

import (
	"cmp"
	"errors"
	"slices"

	"github.com/forkd/forkd/internal/leaf/environ"
	"github.com/forkd/forkd/internal/leaf/secretid"
)

// SecretRef asks for a secret in the environment of a sandbox.
type SecretRef struct {
	Name     string // of the owner's secret
	Variable string // environment variable with its value; if empty, Name
}

// HeldSecret is a secret that a sandbox's memory or disk may contain.
type HeldSecret struct {
	secretid.Secret
	// Variable is the environment variable with its value. It is empty if only an ancestor had it.
	Variable string `json:"variable,omitempty"`
	// Void is set by package tenancy if the secret was rotated or removed since.
	Void bool `json:"-"`
}

// SecretSource holds the values of secrets. Its methods are safe for concurrent use.
type SecretSource interface {
	// Value returns a tenant's secret and its current value. The error's kind is ErrNotFound if the tenant has no
	// such secret.
	Value(tenant, name string) (secretid.Secret, string, error)
	// Void reports whether a version of a secret is no longer valid. It reports false if that is unknown.
	Void(of secretid.Secret) bool
	// Follow calls told after each change of a tenant's secrets.
	Follow(told func(tenant string))
}

// MaxSecretRefs is the largest number of secrets in one request.
const MaxSecretRefs = 64

// GiveSecrets returns the secrets that a request asks for, and their values by variable. env is the request's
// other environment.
func GiveSecrets(src SecretSource, owner string, refs []SecretRef, env map[string]string) ([]HeldSecret,
	map[string]string, error) {
	if len(refs) == 0 {
		return nil, nil, nil
	}
	if len(refs) > MaxSecretRefs {
		return nil, nil, Errorf(ErrInvalid, "", "%d secrets, want at most %d", len(refs), MaxSecretRefs)
	}
	values := make(map[string]string, len(refs))
	var held []HeldSecret
	for _, r := range refs {
		variable := cmp.Or(r.Variable, r.Name)
		_, other := env[variable]
		if _, twice := values[variable]; twice || other {
			return nil, nil, Errorf(ErrInvalid, "", "secret %s: the variable %s has another value in this request",
				Clip(r.Name), Clip(variable))
		}
		s, value, err := valueOf(src, owner, r.Name)
		if err != nil {
			return nil, nil, err
		}
		if err := environ.Check(map[string]string{variable: value}); err != nil { // it names no value
			return nil, nil, withSecret(Errorf(ErrInvalid, ReasonSecretUnreadable, "secret %s: %w", s.Name, err), s.Name)
		}
		values[variable] = value
		held = append(held, HeldSecret{Secret: s, Variable: variable})
	}
	return held, values, nil
}

func valueOf(src SecretSource, owner, name string) (secretid.Secret, string, error) {
	if src == nil {
		return secretid.Secret{}, "", Errorf(ErrUnsupported, ReasonSecretsOff, "this daemon keeps no secrets")
	}
	return src.Value(owner, name)
}

func withSecret(err error, name string) error { return Detailed(err, "secret", name) }

// RenewSecrets returns the secrets of a sandbox that gets another VM, and the current values by variable. A secret
// that was removed since loses its variable: the new VM does not get it, but its memory may still contain it.
func RenewSecrets(src SecretSource, owner string, held []HeldSecret) ([]HeldSecret, map[string]string, error) {
	next, values := slices.Clone(held), map[string]string{}
	for i, h := range next {
		if h.Variable == "" {
			continue
		}
		s, value, err := valueOf(src, owner, h.Name)
		switch {
		case errors.Is(err, ErrNotFound):
			next[i].Variable = ""
		case err != nil:
			return nil, nil, err
		default:
			values[h.Variable], next[i].Secret = value, s
		}
	}
	return next, values, nil
}

// InheritSecrets returns the secrets of a sandbox that is made from a snapshot: the snapshot's, and the ones given
// to it.
func InheritSecrets(from []secretid.Secret, given []HeldSecret) []HeldSecret {
	var out []HeldSecret
	for _, h := range given {
		if h.Variable != "" {
			out = append(out, h)
		}
	}
	for _, s := range from {
		if !slices.ContainsFunc(out, func(h HeldSecret) bool { return h.Secret == s }) {
			out = append(out, HeldSecret{Secret: s})
		}
	}
	return out
}

// SecretsIn returns the secrets that a snapshot of a sandbox may contain, without those that are void already.
func SecretsIn(src SecretSource, held []HeldSecret) []secretid.Secret {
	var out []secretid.Secret
	for _, h := range held {
		if !slices.Contains(out, h.Secret) && !voided(src, h.Secret) {
			out = append(out, h.Secret)
		}
	}
	return out // more than a manifest can have fail the capture, instead of being forgotten
}

func voided(src SecretSource, s secretid.Secret) bool { return src != nil && src.Void(s) }

// RefuseTainted returns an error that names the first secret whose current value a snapshot may contain.
func RefuseTainted(src SecretSource, tag string, in []secretid.Secret) error {
	for _, s := range in {
		if !voided(src, s) {
			return withSecret(Errorf(ErrConflict, ReasonTainted, "snapshot %s may contain version %d of secret %s", tag,
				s.Version, s.Name), s.Name)
		}
	}
	return nil
}
