package e2bapi

import (
	"maps"

	"github.com/forkd/forkd/internal/domain/principal"
)

// Routes returns the control API's patterns with the scopes they need.
func (h *Handler) Routes() map[string]principal.Scopes {
	out := map[string]principal.Scopes{}
	for pattern, rt := range maps.All(h.routes()) {
		out[pattern] = rt.scope
	}
	return out
}
