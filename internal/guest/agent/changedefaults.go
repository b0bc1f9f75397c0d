package agent

import (
	"encoding/json"
	"net/http"

	"github.com/forkd/forkd/internal/guest/agent/account"
	"github.com/forkd/forkd/internal/guest/agent/defaults"
)

// maxDefaults limits the size of a request to change the defaults.
const maxDefaults = 1 << 20

// changeDefaults serves POST /defaults. It changes the variables, user and working directory for
// all later requests without their own, in this guest and in every clone. Template builds set them
// this way.
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
