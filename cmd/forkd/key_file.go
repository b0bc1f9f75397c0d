//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
)

// createKeyInFile makes a key without a daemon. The file is made if it is missing.
func createKeyInFile(a *app, path string, req api.CreateKeyRequest) error {
	scopes, err := principal.ParseScopes(req.Scopes)
	if err != nil {
		return exit.UsageError{Err: fmt.Errorf("--scope: %w", err)}
	}
	spec := keys.Spec{Name: req.Name, Tenant: req.Tenant, Scopes: scopes, Quotas: keys.Quotas(req.Quotas),
		HostPorts: req.HostPorts}
	if req.ExpiresSecs > 0 {
		spec.Expires = time.Now().Add(time.Duration(req.ExpiresSecs) * time.Second)
	}
	store, err := keys.Open(keys.Config{Path: path})
	if err != nil {
		return err
	}
	k, text, err := store.Create(spec)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	made := api.Key{ID: k.ID, Name: k.Name, Tenant: k.Tenant, Scopes: k.Scopes.List(), Quotas: req.Quotas,
		Status: "active", CreatedUnix: k.Created.Unix(), HostPorts: k.HostPorts}
	if !k.Expires.IsZero() {
		made.ExpiresUnix = new(k.Expires.Unix())
	}
	return printNewKey(a, api.NewKey{Key: made, Text: text})
}
