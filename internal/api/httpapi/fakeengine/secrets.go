package fakeengine

import (
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/secretid"
	"github.com/forkd/forkd/internal/store/receipt"
)

// secretsOf returns the secrets in a snapshot.
func secretsOf(s sandbox.SnapshotInfo) (out []secretid.Secret) {
	for _, h := range s.Secrets {
		out = append(out, h.Secret)
	}
	return out
}

// receiptSecrets returns the secrets of a sandbox for a receipt.
func receiptSecrets(held []sandbox.HeldSecret) (out []receipt.Secret) {
	for _, h := range held {
		out = append(out, receipt.Secret{Name: h.Name, ID: h.ID, Version: h.Version, Variable: h.Variable})
	}
	return out
}
