package agent

import (
	"encoding/json"
	"net/http"

	"github.com/forkd/forkd/internal/guest/agent/volumefiles"
	"github.com/forkd/forkd/internal/guest/agentproto"
)

// plainRoutes adds the routes that are not RPCs.
func (a *Agent) plainRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /envs", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, a.rec.Env())
	})
	mux.HandleFunc("POST /defaults", a.changeDefaults)
	a.services.AddRoutes(mux)
	volumefiles.AddRoutes(mux)
	mux.HandleFunc("GET /metrics", a.metrics)
	mux.HandleFunc("GET /files", a.files.Download)
	mux.HandleFunc("POST /files", a.files.Upload)
	mux.HandleFunc("POST /files/link", a.files.Link)
	mux.HandleFunc("GET /files/tree", a.files.DownloadTree)
	mux.HandleFunc("POST /files/tree", a.files.UploadTree)
}

// withTrees adds a header to each answer, which means that this agent supports trees.
func withTrees(path string, next http.Handler) (string, http.Handler) {
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(agentproto.HeaderTrees, "1")
		next.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
