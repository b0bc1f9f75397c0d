//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/internal/exit"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/store/signature"
)

// signatureOptions are the daemon's flags for signatures of snapshots.
type signatureOptions struct {
	path   string
	policy *signature.Policy // nil without a file
}

func (o *signatureOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.path, "signature-policy", "",
		"accept snapshots from registries and files only with a signature trusted by the YAML `FILE` (default: accept all)")
}

// complete reads the policy and its keys.
func (o *signatureOptions) complete() (err error) {
	if o.path == "" {
		return nil
	}
	if o.policy, err = signature.ReadPolicy(o.path); err != nil {
		return exit.UsageError{Err: fmt.Errorf("--signature-policy: %w", err)}
	}
	return nil
}

func (o *signatureOptions) configure(c *engine.Config) {
	if o.policy != nil {
		c.SnapshotTrust = o.policy.Check
	}
}

// serveSigned is a rule of the policy in the output of serve --check.
type serveSigned struct {
	Repositories []string `json:"repositories"`
	Key          string   `json:"key"`         // its file
	Fingerprint  string   `json:"fingerprint"` // SHA-256 of the key
}

func (o *signatureOptions) shown() (all []serveSigned) {
	if o.policy == nil {
		return nil
	}
	for _, r := range o.policy.Rules {
		for i, k := range r.Keys {
			all = append(all, serveSigned{r.Repositories, r.Files[i], k.Fingerprint})
		}
	}
	return all
}

func printSigned(a *app, all []serveSigned) error {
	if len(all) == 0 {
		return nil
	}
	rows := [][]string{}
	for _, s := range all {
		rows = append(rows, []string{strings.Join(s.Repositories, ","), s.Key, s.Fingerprint[:16]})
	}
	return a.Table([]string{"REPOSITORIES", "SIGNED BY", "FINGERPRINT"}, rows)
}
