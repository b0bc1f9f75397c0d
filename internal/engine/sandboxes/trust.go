package sandboxes

import (
	"context"

	"github.com/forkd/forkd/internal/engine/trust"
)

// Trust makes the guest of a running sandbox trust a certificate of forkd-net.
func (t *Table) Trust(ctx context.Context, id, ca string) error {
	_, m, err := t.Running(id)
	if err != nil || m.Agent == nil {
		return err
	}
	return trust.Install(ctx, m.Agent, ca)
}
