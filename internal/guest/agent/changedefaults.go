package agent

import (
	"encoding/json"
	"net/http"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
)

// maxDefaults bounds a request that changes them.
const maxDefaults = 1 << 20

// changeDefaults is POST /defaults: variables, user and working folder of everything that names
// none, from now on and in every clone. It is how a template's build leaves them.
func (a *Agent) changeDefaults(w http.ResponseWriter, r *http.Request) {
	var c defaults.Image
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxDefaults)).Decode(&c); err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if c.User != "" {
		if _, err := account.Lookup(c.User); err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	if err := a.rec.Change(c, a.cfg.ImageFile); err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
