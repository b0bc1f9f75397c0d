//go:build linux

package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/domain/idtoken"
	"github.com/forkd/forkd/internal/engine"
)

// identityFolder is the folder of the signing keys in the data directory.
const identityFolder = "identity"

// identityOptions are the daemon's flags for identity tokens.
type identityOptions struct {
	url      string
	lifetime time.Duration
	// audiences are those that tokens may have; any if it is empty.
	audiences []string
}

func (o *identityOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.url, "identity-issuer", "",
		"issue identity tokens to sandboxes as `URL`, where services fetch the keys: https://HOST[/PATH] (default: "+
			"none; see forkd fork --identity)")
	f.DurationVar(&o.lifetime, "identity-lifetime", idtoken.DefaultLifetime,
		"end identity tokens after `DURATION`, 1m to 1h")
	f.StringArrayVar(&o.audiences, "identity-audience", nil,
		"issue identity tokens for audience `NAME` only; may be repeated (default: any audience)")
}

func (o *identityOptions) complete() error {
	if err := idtoken.CheckLifetime(o.lifetime); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--identity-lifetime %w", err)}
	}
	if o.url == "" {
		return nil
	}
	if err := idtoken.CheckURL(o.url); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--identity-issuer: %w", err)}
	}
	return nil
}

// open opens the issuer, and hands it to the engine. It returns nil without an issuer.
func (o *identityOptions) open(data string, c *engine.Config, log *slog.Logger) (*idtoken.Issuer, error) {
	if o.url == "" {
		return nil, nil
	}
	issuer, err := idtoken.Open(idtoken.Config{URL: o.url, Lifetime: o.lifetime, Dir: filepath.Join(data, identityFolder),
		Audiences: o.audiences, Log: log})
	if err != nil {
		return nil, fmt.Errorf("keys of identity tokens: %w", err)
	}
	c.Identity = issuer // only if it is not nil
	return issuer, nil
}
