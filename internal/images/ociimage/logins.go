package ociimage

import (
	"context"
	"fmt"
)

// Login is a credential for a host. It is as in Docker's configuration.
type Login struct {
	Host, Username, Password, IdentityToken, RegistryToken string
}

// Logins returns the credentials for the repository and its mirrors, for another process that reads them. Hosts without
// a credential are absent.
func (r *Repository) Logins(context.Context) ([]Login, error) {
	var out []Login
	for _, e := range r.r.endpoints {
		c, err := e.auth.Authorization()
		if err != nil {
			return nil, fmt.Errorf("read credentials for %s: %w", e.repo.RegistryStr(), err)
		}
		l := Login{e.repo.RegistryStr(), c.Username, c.Password, c.IdentityToken, c.RegistryToken}
		if l != (Login{Host: l.Host}) {
			out = append(out, l)
		}
	}
	return out, nil
}
