package e2bapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/e2bapi/volumefiles"
	"github.com/forkd/forkd/internal/api/iodeadline"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/volumewire"
)

// volumeTemplate is the template of the sandboxes for files of volumes: the default of E2B's clients.
const volumeTemplate = "base"

// contentScopes are the scopes of a key that may use the files of volumes: a sandbox is forked for them.
const contentScopes = principal.Run | principal.Fork

// volumeContent serves the files of volumes. Its requests show the token of a volume, not a key.
type volumeContent struct{ h *Handler }

// contentCall is a request for the files of a volume.
type contentCall struct {
	*http.Request
	w      http.ResponseWriter
	sender volumefiles.Sender
	volume string // id
	path   string // in the volume
}

// routes adds the routes. A volume without a route of that method gets the mux's own answer.
func (vc volumeContent) routes(mux *http.ServeMux) {
	for pattern, f := range map[string]func(contentCall, agentclient.VolumeFiles) error{
		"GET /volumecontent/{volume}/path":    vc.stat,
		"PATCH /volumecontent/{volume}/path":  vc.change,
		"DELETE /volumecontent/{volume}/path": vc.remove,
		"GET /volumecontent/{volume}/dir":     vc.list,
		"POST /volumecontent/{volume}/dir":    vc.makeDir,
		"GET /volumecontent/{volume}/file":    vc.read,
		"PUT /volumecontent/{volume}/file":    vc.write,
	} {
		action, reads := "volume.write", strings.HasPrefix(pattern, http.MethodGet)
		if reads {
			action = "volume.read"
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			vc.h.opt.Note(r.Context(), Act{Action: action, Read: reads})
			if err := vc.serve(w, r, f); err != nil {
				vc.h.opt.Note(r.Context(), Act{Error: apiErrorOf(err).Message})
				writeContentError(w, err)
			}
		})
	}
}

// serve checks the token and opens the volume. It returns an error only if no answer has been begun.
func (vc volumeContent) serve(w http.ResponseWriter, r *http.Request,
	f func(contentCall, agentclient.VolumeFiles) error) error {
	if vc.h.opt.Volumes.Store == nil {
		return notYet("volumes")
	}
	c, end, err := vc.admit(w, r)
	if err != nil {
		return err
	}
	defer end()
	err = vc.h.files.Use(c.Context(), c.sender, c.volume, func(v agentclient.VolumeFiles) error { return f(c, v) })
	if silent := iodeadline.Silence(r.Context()); err != nil && silent != nil {
		return failf(http.StatusRequestTimeout, "%v", silent)
	}
	var refused *agentclient.FileError
	switch {
	case err != nil && principal.KeyEnded(c.Context()): // whatever error an ended context has caused
		return errVolumeKey
	case errors.As(err, &refused):
		return failf(refusedStatus(refused.Code), "path %s: %s", sandbox.Clip(c.path), refused.Error())
	case errors.Is(err, agentclient.ErrNoVolumeFiles):
		return failf(http.StatusNotImplemented, "%v", err)
	}
	return volumeError(err)
}

// refusedStatus returns the status for clients of a status that a guest sent.
func refusedStatus(code int) int {
	switch code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
		http.StatusInsufficientStorage:
		return code
	}
	return http.StatusInternalServerError
}

// errVolumeKey is the error of a token whose key has ended.
var errVolumeKey = failf(http.StatusUnauthorized, "the API key of the volume's token is revoked or has expired")

// admit checks the token of a request. The token acts for the key that asked for it, while that key is valid. The
// caller calls end when the request has ended.
func (vc volumeContent) admit(w http.ResponseWriter, r *http.Request) (_ contentCall, end func(), err error) {
	shown, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	grant, err := vc.h.tokens.Parse(shown)
	if err == nil && grant.Volume != r.PathValue("volume") {
		err = volumefiles.ErrToken
	}
	if err != nil {
		return contentCall{}, nil, failf(http.StatusUnauthorized, "%v", err)
	}
	who := principal.Principal{KeyID: grant.KeyID, Tenant: grant.Tenant, Scopes: contentScopes | principal.Read}
	ctx := principal.With(r.Context(), who)
	engine := vc.h.opt.View(ctx)
	end = func() {}
	if life, ok := engine.(keyLife); ok {
		if !life.KeyAlive() {
			return contentCall{}, nil, errVolumeKey
		}
		ctx, end = bindKey(ctx, w, life.KeyAlive)
	}
	vc.h.opt.Note(ctx, Act{Principal: volumePrincipal, Tenant: grant.Tenant})
	return contentCall{Request: r.WithContext(ctx), w: w, sender: vc.sender(ctx, r, engine, who), volume: grant.Volume,
		path: r.URL.Query().Get("path")}, end, nil
}

// keyLife is a view that knows the life of its key.
type keyLife interface{ KeyAlive() bool }

// sender returns the sender of requests for files.
func (vc volumeContent) sender(ctx context.Context, r *http.Request, engine Engine,
	who principal.Principal) volumefiles.Sender {
	return volumefiles.Sender{Engine: engine, Tenant: who.Tenant, Template: func(asked context.Context) (string, error) {
		c := call{Request: r, ctx: asked, engine: engine, who: who, log: vc.h.opt.Log}
		snap, err := vc.h.templateSnapshot(c, &records.Record{Template: volumeTemplate})
		if isNotFound(err) {
			return "", failf(http.StatusNotImplemented, "the files of a volume that no sandbox has are opened in a sandbox of "+
				"the template %s, which is missing: build its image, or mount the volume in a sandbox", volumeTemplate)
		}
		return snap.Tag, err
	}}
}

// volumeEntry describes a file to clients.
type volumeEntry struct {
	Name   string          `json:"name"`
	Type   volumewire.Kind `json:"type"`
	Path   string          `json:"path"`
	Size   int64           `json:"size"`
	Mode   uint32          `json:"mode"`
	UID    uint32          `json:"uid"`
	GID    uint32          `json:"gid"`
	Atime  time.Time       `json:"atime"`
	Mtime  time.Time       `json:"mtime"`
	Ctime  time.Time       `json:"ctime"`
	Target string          `json:"target,omitempty"`
}

func shownEntry(e volumewire.Entry) volumeEntry {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	return volumeEntry{Name: e.Name, Type: e.Kind, Path: e.Path, Size: e.Size, Mode: e.Mode, UID: e.UID, GID: e.GID,
		Atime: at(e.Atime), Mtime: at(e.Mtime), Ctime: at(e.Ctime), Target: e.Target}
}

// sendEntry answers with a file, unless err is set.
func sendEntry(c contentCall, status int, e volumewire.Entry, err error) error {
	if err != nil {
		return err
	}
	writeJSON(c.w, status, shownEntry(e))
	return nil
}

func (vc volumeContent) stat(c contentCall, v agentclient.VolumeFiles) error {
	e, err := v.Stat(c.Context(), c.path)
	return sendEntry(c, http.StatusOK, e, err)
}

func (vc volumeContent) list(c contentCall, v agentclient.VolumeFiles) error {
	depth, err := queryNumber(c, "depth", volumewire.MaxDepth)
	if err != nil {
		return err
	}
	if depth == nil {
		depth = new(uint32(1))
	}
	all, err := v.List(c.Context(), c.path, int(*depth))
	if err != nil {
		return err
	}
	out := make([]volumeEntry, 0, len(all))
	for _, e := range all {
		out = append(out, shownEntry(e))
	}
	writeJSON(c.w, http.StatusOK, out)
	return nil
}

func (vc volumeContent) makeDir(c contentCall, v agentclient.VolumeFiles) error {
	a, err := queryAttrs(c)
	if err != nil {
		return err
	}
	e, err := v.MakeDir(c.Context(), c.path, a, c.URL.Query().Get("force") == "true")
	return sendEntry(c, http.StatusCreated, e, err)
}

func (vc volumeContent) change(c contentCall, v agentclient.VolumeFiles) error {
	body, err := readBody(c.w, c.Request)
	if err != nil {
		return err
	}
	var req struct{ UID, GID, Mode *uint32 }
	if err := decode(body, &req); err != nil {
		return err
	}
	if req.Mode != nil && *req.Mode > volumewire.MaxMode {
		return invalidf("mode is %d, want at most %d", *req.Mode, volumewire.MaxMode)
	}
	e, err := v.Change(c.Context(), c.path, volumewire.Attrs{UID: req.UID, GID: req.GID, Mode: req.Mode})
	return sendEntry(c, http.StatusOK, e, err)
}

func (vc volumeContent) remove(c contentCall, v agentclient.VolumeFiles) error {
	if err := v.Remove(c.Context(), c.path); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// read sends a file. If it breaks off, so does the answer.
func (vc volumeContent) read(c contentCall, v agentclient.VolumeFiles) error {
	content, size, err := v.Read(c.Context(), c.path)
	if err != nil {
		return err
	}
	defer content.Close()
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	if _, err := io.Copy(c.w, content); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (vc volumeContent) write(c contentCall, v agentclient.VolumeFiles) error {
	a, err := queryAttrs(c)
	if err != nil {
		return err
	}
	if room, ok := c.sender.Engine.(uploadRoom); ok {
		if err := room.UploadRoom(c.Context()); err != nil {
			return err
		}
	}
	e, err := v.Write(c.Context(), c.path, a, c.URL.Query().Get("force") == "true", c.Body)
	return sendEntry(c, http.StatusCreated, e, err)
}

// queryAttrs reads the owner and the mode from the query, as decimal numbers.
func queryAttrs(c contentCall) (a volumewire.Attrs, err error) {
	for _, f := range []struct {
		name string
		most uint32
		to   **uint32
	}{{"uid", 1<<32 - 2, &a.UID}, {"gid", 1<<32 - 2, &a.GID}, {"mode", volumewire.MaxMode, &a.Mode}} {
		if *f.to, err = queryNumber(c, f.name, f.most); err != nil {
			return a, err
		}
	}
	return a, nil
}

// queryNumber returns a number of the query, or nil if it is absent.
func queryNumber(c contentCall, name string, most uint32) (*uint32, error) {
	text := c.URL.Query().Get(name)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > uint64(most) {
		return nil, invalidf("%s is %q, want a number from 0 to %d", name, sandbox.Clip(text), most)
	}
	return new(uint32(n)), nil
}

// writeContentError answers with an error in the form of these routes, where the code is a text.
func writeContentError(w http.ResponseWriter, err error) {
	e := apiErrorOf(err)
	setErrorHeaders(w, e)
	writeJSON(w, e.Code, struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{strings.ReplaceAll(strings.ToLower(http.StatusText(e.Code)), " ", "_"), e.Message})
}
