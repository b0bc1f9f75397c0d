package e2bapi

import (
	"net/http"

	"github.com/forkd/forkd/internal/api/e2bapi/target"
)

// Act is the audit information of a request. It may be sent in parts: empty fields change nothing.
type Act struct {
	Action string // name in the audit log; sent together with Read
	Read   bool   // it changes nothing; used with Action
	// Agent is the path of a request to a sandbox's agent. It replaces Action.
	Agent string
	// Principal is the sender's proof of identity, unless it was a key. Tenant is the owner of the
	// sandbox. Both are set only after the check.
	Principal, Tenant string
	// Sandbox is the engine's ID, Snapshot is a tag. They are the request's objects.
	Sandbox, Snapshot string
	Error             string // message of the answer, if the request failed
	Count             int    // requested sandboxes
}

// envdPrincipal is the principal of a client with a sandbox's token, or with a URL signed with it.
const envdPrincipal = "sandbox token"

// volumePrincipal is the principal of a client with a volume's token.
const volumePrincipal = "volume token"

// noteAgent records a request to a sandbox's agent before its sender is known.
func (h *Handler) noteAgent(r *http.Request, to target.Target) {
	h.opt.Note(r.Context(), Act{Agent: r.URL.Path, Sandbox: to.ID})
}

// noteAdmitted records the sender after it has shown the sandbox's token. The sender is anonymous
// if the sandbox is open.
func (e *envd) noteAdmitted(r *http.Request, to target.Target) {
	rec, ok := e.h.opt.Records.Get(to.ID)
	info, err := e.h.opt.Engine.Get(to.ID)
	if err != nil || !ok || rec.OpenAgent {
		return
	}
	e.h.opt.Note(r.Context(), Act{Principal: envdPrincipal, Tenant: info.Owner})
}
