package routing

import (
	"net/http"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/principal"
)

// Need is the scope a route requires. Package tenancy decides which objects a tenant's key can
// reach.
type Need struct {
	Scope    principal.Scopes // 0: no scope
	Operator bool             // a tenant's key is never enough
	or       principal.Scopes // another scope that is enough; 0: none
}

// Needs has a row for each route. A route without a row is refused to all clients.
func Needs() map[string]Need {
	read, run, fork := Need{Scope: principal.Read}, Need{Scope: principal.Run}, Need{Scope: principal.Fork}
	admin, operator := Need{Scope: principal.Admin}, Need{Scope: principal.Admin, Operator: true}
	layers := Need{Scope: principal.Fork, or: principal.Layers} // they are the memory, which a fork can read
	return map[string]Need{
		"GET /healthz": {},
		"GET /readyz":  {},
		"GET /version": {},
		"GET /metrics": {Scope: principal.Read, Operator: true},

		"GET /v1/snapshots":                    read,
		"POST /v1/snapshots":                   fork,
		"DELETE /v1/snapshots/{tag}":           fork,
		"GET /v1/snapshots/{tag}/info":         read,
		"GET /v1/snapshots/{tag}/receipt":      read,
		"GET /v1/snapshots/{tag}/diff/{other}": fork, // a child of each is made for it
		"POST /v1/snapshots/{tag}/verify":      fork,
		"POST /v1/snapshots/{tag}/compact":     fork,
		"POST /v1/snapshots/{tag}/rename":      fork,
		"PATCH /v1/snapshots/{tag}/labels":     fork,
		"POST /v1/store/prune":                 fork,
		"GET /v1/snapshots/{tag}/export":       fork, // it reads the memory, as a fork can
		"PUT /v1/snapshots/{tag}":              fork,
		"POST /v1/snapshots/{tag}/copy":        fork,

		"GET /v1/snapshots/{tag}/artifact":          layers,
		"GET /v1/snapshots/{tag}/artifact/{digest}": layers,

		"PUT /v1/snapshots/{tag}/pool":   admin,
		"PUT /v1/snapshots/{tag}/public": operator,
		"GET /v1/pools":                  read,
		"POST /v1/store/gc":              operator,
		"GET /v1/receipts":               read,

		"GET /v1/sandboxes":                             read,
		"POST /v1/sandboxes":                            fork,
		"POST /v1/sandboxes/keep":                       {Scope: principal.Run | principal.Fork},
		"GET /v1/sandboxes/{id}":                        read,
		"DELETE /v1/sandboxes/{id}":                     fork,
		"GET /v1/sandboxes/{id}/memory":                 read,
		"GET /v1/sandboxes/{id}/console":                read,
		"GET /v1/sandboxes/{id}/receipt":                read,
		"POST /v1/sandboxes/{id}/branch":                fork,
		"POST /v1/sandboxes/{id}/rollback":              fork,
		"POST /v1/sandboxes/{id}/promote":               fork,
		"POST /v1/sandboxes/{id}/merge":                 {Scope: principal.Run | principal.Fork},
		"POST /v1/sandboxes/{id}/pause":                 fork,
		"POST /v1/sandboxes/{id}/resume":                fork,
		"POST /v1/sandboxes/{id}/handover":              {Scope: principal.Layers, Operator: true}, // for daemons
		"PATCH /v1/sandboxes/{id}/life":                 fork,
		"PATCH /v1/sandboxes/{id}/labels":               fork,
		"GET /v1/sandboxes/{id}/network":                read,
		"PUT /v1/sandboxes/{id}/network":                fork,
		"GET /v1/sandboxes/{id}/network/flows":          read,
		"GET /v1/sandboxes/{id}/network/log":            read,
		"GET /v1/sandboxes/{id}/services":               run,
		"PUT /v1/sandboxes/{id}/services/{service}":     run,
		"POST /v1/sandboxes/{id}/services/{service}":    run,
		"DELETE /v1/sandboxes/{id}/services/{service}":  run,
		"GET /v1/sandboxes/{id}/services/{service}/log": run,
		"POST /v1/sandboxes/{id}/ping":                  run,
		"POST /v1/sandboxes/{id}/exec":                  run,
		"POST /v1/sandboxes/{id}/eval":                  run,
		"GET /v1/sandboxes/{id}/ports/{port}/connect":   run,
		"POST /v1/sandboxes/{id}/ports/{port}/connect":  run,
		"GET /v1/sandboxes/{id}/agent/{path}":           run,
		"POST /v1/sandboxes/{id}/agent/{path}":          run,

		"GET /v1/workspaces":                      read,
		"POST /v1/workspaces":                     fork,
		"GET /v1/workspaces/{workspace}":          read,
		"DELETE /v1/workspaces/{workspace}":       fork,
		"POST /v1/workspaces/{workspace}/suspend": fork,
		"POST /v1/workspaces/{workspace}/resume":  fork,

		"GET /v1/images":           read,
		"GET /v1/images/{name}":    read,
		"HEAD /v1/images/{name}":   read,
		"PUT /v1/images/{name}":    operator, // all tenants use the same images
		"DELETE /v1/images/{name}": operator,

		"GET /v1/capacity":     operator,                                // it includes all tenants
		"GET /v1/node":         {Scope: principal.Read, Operator: true}, // it includes all tenants
		"GET /v1/drain":        operator,
		"POST /v1/drain":       operator,
		"DELETE /v1/drain":     operator,
		"GET /v1/audit":        operator,
		"GET /v1/audit/verify": operator,
		"GET /v1/events":       read, // the caller's own

		"GET /v1/keys":               admin,
		"POST /v1/keys":              admin,
		"DELETE /v1/keys/{key}":      admin,
		"POST /v1/keys/{key}/rotate": admin,

		"GET /v1/secrets":             read, // without values
		"GET /v1/secrets/{secret}":    read,
		"PUT /v1/secrets/{secret}":    admin,
		"DELETE /v1/secrets/{secret}": admin,

		"GET /v1/volumes":                    read,
		"GET /v1/volumes/{volume}":           read,
		"POST /v1/volumes":                   fork,
		"DELETE /v1/volumes/{volume}":        fork,
		"POST /v1/volumes/{volume}/snapshot": fork,

		"GET /v1/networks":                 read,
		"GET /v1/networks/{network}":       read,
		"POST /v1/networks":                fork,
		"DELETE /v1/networks/{network}":    fork,
		"POST /v1/networks/{network}/fork": fork,

		"GET /v1/tenants/{tenant}": {Scope: principal.Read, Operator: true},
		"PUT /v1/tenants/{tenant}": operator,
	}
}

// permit refuses a key without the scope a route needs. The existence of the object is checked
// first, so that "forbidden" is returned only for the caller's own objects.
func (rt *Router) permit(r *http.Request, of string) error {
	n, known := rt.needs[of]
	if !known {
		return apierror.New(api.CodeInternal, "", "the daemon has no scope for %s", of)
	}
	who := principal.From(r.Context())
	may := n.Scope == 0 || who.May(n.Scope) || n.or != 0 && who.May(n.or)
	if may && (!n.Operator || who.Operator()) {
		return nil
	}
	if err := rt.there(r, who); err != nil {
		return err
	}
	if may {
		return apierror.New(api.CodeForbidden, api.ReasonOperatorOnly,
			"only the operator is allowed to do this, not a tenant's key")
	}
	f := apierror.New(api.CodeForbidden, api.ReasonScopeMissing, "the key lacks the scope %s", n.Scope)
	f.Details = map[string]string{"scope": n.Scope.String()}
	return f
}

// there returns an error if the object in the path does not exist for the caller.
func (rt *Router) there(r *http.Request, who principal.Principal) error {
	view := rt.objects.View(r.Context())
	if id := r.PathValue("id"); id != "" {
		if _, err := view.Sandboxes.Get(id); err != nil {
			return err
		}
	}
	for _, name := range []string{"tag", "other"} {
		if tag := r.PathValue(name); tag != "" {
			if _, err := view.Snapshots.SnapshotBrief(tag); err != nil {
				return err
			}
		}
	}
	if name := r.PathValue("workspace"); name != "" {
		if _, err := rt.objects.Workspaces.Get(r.Context(), view.Sandboxes, name); err != nil {
			return err
		}
	}
	if id := r.PathValue("key"); id != "" {
		if err := rt.objects.Key(who, id); err != nil {
			return err
		}
	}
	return nil
}
