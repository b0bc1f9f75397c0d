package e2bapi

import (
	"net/http"

	"github.com/forkd/forkd/internal/e2bapi/target"
)

// Act is what a request is, for the audit log. It may be told in parts: an empty field says nothing.
type Act struct {
	Action string
	Read   bool // it changes nothing; goes with Action
	// Agent is the path of a request to a sandbox's agent, in place of Action.
	Agent             string
	Principal, Tenant string // how the sender showed who it is, if that was no key; whose the sandbox is
	Sandbox, Snapshot string
	Error             string
	Count             int // sandboxes that were asked for
}

// envdPrincipal is who shows a sandbox's token, or a URL that was signed with it.
const envdPrincipal = "sandbox token"

// noteAgent tells of a request to a sandbox's agent, whose sender is known by the sandbox's token.
func (h *Handler) noteAgent(r *http.Request, to target.Target) {
	info, err := h.opt.Engine.Get(to.ID)
	if err != nil {
		return
	}
	h.opt.Note(r.Context(), Act{Agent: r.URL.Path, Principal: envdPrincipal, Tenant: info.Owner, Sandbox: to.ID})
}
