package e2bapi

import (
	"errors"
	"net/http"

	"github.com/forkd/forkd/internal/api/e2bapi/volumefiles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/store/volume"
)

// volumeRoutes serve E2B's volumes over the store of the native API. A volume is private to one sandbox at a
// time; E2B's are shared. volumeContent serves their files.
type volumeRoutes struct{ h *Handler }

// e2bVolumeBytes is the size of a volume: E2B's clients do not ask for one.
const e2bVolumeBytes = 10 << 30

// volumeInfo describes a volume to clients.
type volumeInfo struct {
	ID   string `json:"volumeID"`
	Name string `json:"name"`
}

// volumeToken is a volumeInfo with the token for requests for the volume's content.
type volumeToken struct {
	volumeInfo
	Token string `json:"token"`
}

func shownVolume(v volume.Volume) volumeInfo { return volumeInfo{v.ID, v.Name} }

// tokenFor returns the token of a volume for a client. Clients refuse an empty one.
func (vr volumeRoutes) tokenFor(c call, id string) string {
	if !c.who.May(contentScopes) {
		return "none"
	}
	return vr.h.tokens.Make(volumefiles.Grant{Volume: id, Tenant: c.who.Tenant, KeyID: c.who.KeyID})
}

// volumeMount is a volume in a request for a sandbox.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// on refuses requests to a server without volumes.
func (vr volumeRoutes) on(f func(call) (answer, error)) func(call) (answer, error) {
	return func(c call) (answer, error) {
		if vr.h.opt.Volumes.Store == nil {
			return answer{}, notYet("volumes")
		}
		return f(c)
	}
}

// volumeError converts an error of the store.
func volumeError(err error) error {
	switch {
	case errors.Is(err, sandbox.ErrInvalid):
		return invalidf("%v", err)
	case errors.Is(err, sandbox.ErrNotFound):
		return failf(http.StatusNotFound, "%v", err)
	case errors.Is(err, sandbox.ErrConflict), errors.Is(err, sandbox.ErrQuota):
		return failf(http.StatusConflict, "%v", err)
	}
	return err
}

// list is GET /volumes.
func (vr volumeRoutes) list(c call) (answer, error) {
	out := []volumeInfo{}
	for _, v := range vr.h.opt.Volumes.List(c.who.Tenant) {
		out = append(out, shownVolume(v))
	}
	return answer{http.StatusOK, out}, nil
}

// create is POST /volumes.
func (vr volumeRoutes) create(c call) (answer, error) {
	var req struct {
		Name string `json:"name"`
	}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	v, err := vr.h.opt.Volumes.Create(c.who.Tenant, req.Name, e2bVolumeBytes)
	if err != nil {
		return answer{}, volumeError(err)
	}
	return answer{http.StatusCreated, volumeToken{shownVolume(v), vr.tokenFor(c, v.ID)}}, nil
}

// get is GET /volumes/{volumeID}.
func (vr volumeRoutes) get(c call) (answer, error) {
	v, err := vr.h.opt.Volumes.Get(c.who.Tenant, c.PathValue("volume"))
	if err != nil {
		return answer{}, volumeError(err)
	}
	return answer{http.StatusOK, volumeToken{shownVolume(v), vr.tokenFor(c, v.ID)}}, nil
}

// remove is DELETE /volumes/{volumeID}.
func (vr volumeRoutes) remove(c call) (answer, error) {
	name := c.PathValue("volume")
	done, err := vr.h.files.Free(c.ctx, volumefiles.Sender{Engine: c.engine, Tenant: c.who.Tenant}, []string{name})
	if err != nil {
		return answer{}, volumeError(err)
	}
	defer done()
	if err := vr.h.opt.Volumes.Remove(c.who.Tenant, name); err != nil {
		return answer{}, volumeError(err)
	}
	return answer{status: http.StatusNoContent}, nil
}

// mounts returns the volumes of a request for one sandbox.
func mounts(h *Handler, all []volumeMount) (out []sandbox.VolumeMount, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	if h.opt.Volumes.Store == nil {
		return nil, notYet("mounting volumes")
	}
	for _, v := range all {
		out = append(out, sandbox.VolumeMount{Name: v.Name, Path: v.Path})
	}
	return out, volumeError(sandbox.CheckVolumes(out, 1))
}
