//go:build linux

package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/leaf/retention"
)

// retentionDefaults are the default rules for snapshots of sandboxes.
type retentionDefaults struct {
	settings []string
	policy   retention.Policy
}

func (o *retentionDefaults) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.settings, "retention", nil,
		"give snapshots of sandboxes without rules the `RULES`: [TENANT:]expire=168h,keep-last=10,max-expire=720h; "+
			"may be repeated, for other tenants (default: none)")
}

func (o *retentionDefaults) complete() (err error) {
	if o.policy, err = retention.ParsePolicy(o.settings, keys.IsTenant); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--retention: %w", err)}
	}
	return nil
}
