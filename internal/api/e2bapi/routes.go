package e2bapi

import (
	"maps"
	"net/http"

	"github.com/forkd/forkd/internal/api/reply"
	"github.com/forkd/forkd/internal/domain/principal"
)

// route is a route of the control API, with the scope a key needs and its name in the audit log.
type route struct {
	scope  principal.Scopes // 0: any key is enough
	action string
	read   bool // it changes nothing
	f      func(call) (answer, error)
}

// routes returns all routes of the control API. The patterns match escaped segments, because a
// template's ID may contain a slash. The view of the engine decides which objects a tenant's key
// can reach.
func (h *Handler) routes() map[string]route {
	many, life, snaps, use, made := listing{h}, lives{h}, snapshots{h}, usage{h}, builds{h}
	look := func(action string, f func(call) (answer, error)) route { return route{principal.Read, action, true, f} }
	make := func(action string, f func(call) (answer, error)) route {
		return route{principal.Fork, action, false, f}
	}
	// A connect returns the token. It checks the scopes for its other effects itself.
	join := func(version int) route {
		return route{principal.Run, "sandbox.connect", false,
			func(c call) (answer, error) { return life.connect(c, version) }}
	}
	all := map[string]route{
		"POST /sandboxes":        make("sandbox.fork", func(c call) (answer, error) { return h.create(c, 1) }),
		"POST /v2/sandboxes":     make("sandbox.fork", func(c call) (answer, error) { return h.create(c, 2) }),
		"GET /sandboxes":         look("sandbox.read", many.listRunning),
		"GET /v2/sandboxes":      look("sandbox.read", many.list),
		"GET /sandboxes/{id}":    look("sandbox.read", many.info),
		"DELETE /sandboxes/{id}": make("sandbox.kill", life.kill),

		"POST /sandboxes/{id}/connect":    join(1),
		"POST /v2/sandboxes/{id}/connect": join(2),
		"POST /sandboxes/{id}/resume":     make("sandbox.resume", life.resume),
		"POST /sandboxes/{id}/pause":      make("sandbox.pause", life.pause),
		"POST /sandboxes/{id}/timeout":    make("sandbox.life", life.setTimeout),
		"POST /sandboxes/{id}/refreshes":  make("sandbox.life", life.refresh),
		"POST /sandboxes/{id}/snapshots":  make("sandbox.branch", snaps.snapshot),
		"POST /sandboxes/{id}/fork":       make("sandbox.fork", snaps.fork),
		"PUT /sandboxes/{id}/network":     make("network.set", h.setNetwork),
		"GET /sandboxes/{id}/metrics":     look("sandbox.read", use.metrics),
		"GET /sandboxes/metrics":          look("sandbox.read", use.metricsOfMany),
		"GET /sandboxes/{id}/logs":        look("sandbox.read", use.logs),
		"GET /v2/sandboxes/{id}/logs":     look("sandbox.read", use.logsV2),

		"GET /snapshots":             look("snapshot.read", snaps.listSnapshots),
		"GET /templates":             look("snapshot.read", snaps.listTemplates),
		"GET /v2/templates":          look("snapshot.read", snaps.listTemplates),
		"GET /templates/{id}":        look("snapshot.read", snaps.template),
		"DELETE /templates/{id}":     make("snapshot.delete", snaps.deleteTemplate),
		"GET /templates/{id}/{part}": look("snapshot.read", snaps.templatePart),

		"POST /v3/templates":                        make("template.build", made.able(made.request)),
		"POST /v2/templates":                        make("template.build", made.able(made.request)),
		"POST /v2/templates/{id}/builds/{build}":    make("template.build", made.able(made.start)),
		"GET /templates/{id}/builds/{build}/status": look("template.read", made.able(made.status)),
		"GET /templates/{id}/builds/{build}/logs":   look("template.read", made.able(made.logs)),
		"GET /templates/{id}/files/{hash}":          make("template.upload", made.able(made.uploadLink)),
		"POST /templates/tags":                      make("template.tag", made.able(made.assignTags)),
		"DELETE /templates/tags":                    make("template.tag", made.able(made.removeTags)),
	}
	kept := secretRoutes{h}
	manage := func(action string, f func(call) (answer, error)) route {
		return route{principal.Admin, action, false, f}
	}
	vols := volumeRoutes{h}
	maps.Copy(all, map[string]route{
		"GET /volumes":             look("volume.read", vols.on(vols.list)),
		"POST /volumes":            make("volume.create", vols.on(vols.create)),
		"GET /volumes/{volume}":    look("volume.read", vols.on(vols.get)),
		"DELETE /volumes/{volume}": make("volume.remove", vols.on(vols.remove)),

		"GET /secrets":             look("secret.read", kept.list),
		"POST /secrets":            manage("secret.set", kept.create),
		"GET /secrets/{secret}":    look("secret.read", kept.get),
		"POST /secrets/{secret}":   manage("secret.set", kept.change),
		"DELETE /secrets/{secret}": manage("secret.remove", kept.remove),
	})
	for pattern, what := range missingRoutes() {
		all[pattern] = route{0, "none", true, func(call) (answer, error) { return answer{}, notYet(what) }}
	}
	return all
}

// missingRoutes returns the routes of E2B this server lacks, with their purpose. They reveal no
// facts about the objects in their paths.
func missingRoutes() map[string]string {
	return map[string]string{
		"POST /templates":          "building templates from a Dockerfile that the client has built",
		"PATCH /v2/templates/{id}": "changing templates", "PATCH /templates/{id}": "changing templates",
		"/volumes": "volumes", "/volumes/": "volumes",
		"/teams": "teams", "/teams/": "teams",
		"/api-keys": "managing keys by E2B's API", "/api-keys/": "managing keys by E2B's API",
	}
}

func (h *Handler) controlRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, rt := range h.routes() {
		mux.HandleFunc(pattern, h.serveRoute(rt))
	}
	mux.HandleFunc("PUT /templates/{id}/files/{hash}", builds{h}.upload)
	volumeContent{h}.routes(mux)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
	})
	return mux
}

// serveRoute authenticates and authorizes the sender, reads the body and writes the answer.
func (h *Handler) serveRoute(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.opt.Note(r.Context(), Act{Action: rt.action, Read: rt.read})
		a, err := h.answerOf(w, r, rt)
		switch {
		case err != nil:
			h.opt.Note(r.Context(), Act{Error: apiErrorOf(err).Message})
			writeError(w, err)
		case a.body == nil:
			w.WriteHeader(a.status)
		default:
			writeJSON(w, a.status, a.body)
		}
	}
}

func (h *Handler) answerOf(w http.ResponseWriter, r *http.Request, rt route) (answer, error) {
	ctx, err := h.opt.Authenticate(r)
	if err != nil {
		return answer{}, authError(err)
	}
	body, err := readBody(w, r)
	if err != nil {
		return answer{}, err
	}
	c := call{Request: r, ctx: ctx, w: w, body: body, engine: h.opt.View(ctx), who: principal.From(ctx),
		log: h.opt.Log}
	if err := h.permit(c, rt.scope); err != nil {
		return answer{}, err
	}
	a, err := rt.f(c)
	if err == nil && a.body != nil {
		err = reply.Charge(ctx, r.Method, a.body)
	}
	if err != nil && principal.KeyEnded(ctx) { // whatever error the engine returns for an ended context
		err = authError(principal.ErrKeyEnded)
	}
	return a, err
}
