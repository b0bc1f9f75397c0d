package e2bapi

import (
	"net/http"

	"github.com/forkd/forkd/internal/api/e2bapi/target"
)

// Act is what a request is, for the audit log. It may be told in parts: an empty field says nothing.
type Act struct {
	Action string
	Read   bool // it changes nothing; goes with Action
	// Agent is the path of a request to a sandbox's agent, in place of Action.
	Agent string
	// Principal is how the sender proved its identity, if not by a key; Tenant owns the sandbox. Both are
	// set only after the check.
	Principal, Tenant string
	Sandbox, Snapshot string
	Error             string
	Count             int // sandboxes that were asked for
}

// envdPrincipal is who shows a sandbox's token, or a URL that was signed with it.
const envdPrincipal = "sandbox token"

// noteAgent names a request to a sandbox's agent before its sender is known.
func (h *Handler) noteAgent(r *http.Request, to target.Target) {
	h.opt.Note(r.Context(), Act{Agent: r.URL.Path, Sandbox: to.ID})
}

// noteAdmitted names the sender once it has shown the sandbox's token. An open sandbox's sender is anonymous.
func (e *envd) noteAdmitted(r *http.Request, to target.Target) {
	rec, ok := e.h.opt.Records.Get(to.ID)
	info, err := e.h.opt.Engine.Get(to.ID)
	if err != nil || !ok || rec.OpenAgent {
		return
	}
	e.h.opt.Note(r.Context(), Act{Principal: envdPrincipal, Tenant: info.Owner})
}
