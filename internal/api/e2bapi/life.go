package e2bapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/records"
	"github.com/forkd/forkd/internal/api/e2bapi/target"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// lives are the operations on the life of one sandbox.
type lives struct{ h *Handler }

// kill is DELETE /sandboxes/{id}.
func (l lives) kill(c call) (answer, error) {
	k, err := l.h.find(c)
	if err != nil {
		return answer{}, err
	}
	if err := c.engine.Kill(c.ctx, k.info.ID); err != nil {
		return answer{}, err
	}
	l.h.forget(k.info.ID)
	return answer{status: http.StatusNoContent}, nil
}

type connectRequest struct {
	Timeout *int64 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

// connect resumes a paused sandbox, and only ever extends the time. A key without the scope fork
// gets the token of a running sandbox, and has no other effect.
func (l lives) connect(c call, version int) (answer, error) {
	var req connectRequest
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	if req.Timeout == nil {
		if version == 1 {
			return answer{}, invalidf("timeout is required")
		}
		standard := int64(defaultTimeoutV2)
		req.Timeout = &standard
	}
	life, err := seconds("timeout", *req.Timeout, 0)
	if err != nil {
		return answer{}, err
	}
	k, err := l.take(c)
	if err != nil {
		return answer{}, err
	}
	status := http.StatusOK
	switch stateOf(k.info) {
	case statePaused:
		if !c.who.May(principal.Fork) {
			return answer{}, lacks(principal.Fork)
		}
		if req.Memory != nil && !*req.Memory && !k.info.Cold {
			return answer{}, notYet("resuming without memory")
		}
		if k, err = l.wake(c, k); err != nil {
			return answer{}, err
		}
		status = http.StatusCreated
	}
	if k, err = l.extend(c, k, life, status == http.StatusCreated); err != nil {
		return answer{}, err
	}
	return answer{status, l.h.created(k, c.Request).tokensFor(c.who)}, nil
}

// take is find for a request that may resume the sandbox. The sandbox comes from another daemon, if a gateway names one
// that has it.
func (l lives) take(c call) (known, error) {
	k, err := l.h.find(c)
	peers := strings.FieldsFunc(strings.Join(c.Request.Header.Values(headerPeers), ","), func(r rune) bool {
		return r == ',' || r == ' '
	})
	if err == nil || l.h.opt.Fetch == nil || !c.who.May(principal.Fork) || len(peers) == 0 && !sandbox.IsBeingTaken(err) {
		return k, err
	}
	if err := l.h.opt.Fetch(c.ctx, target.ID(c.PathValue("id")), peers); err != nil {
		return known{}, err
	}
	return l.h.find(c)
}

// headerPeers names the daemons that may have the sandbox of a resume, as api.HeaderPeers.
const headerPeers = "Forkd-Peers"

// wake resumes a sandbox. If several requests arrive, one resumes it and the others wait.
func (l lives) wake(c call, k known) (known, error) {
	if err := l.h.opt.Lives.Resume(c.ctx, k.info.ID); err != nil {
		return known{}, err
	}
	info, err := c.engine.Get(k.info.ID)
	if err != nil {
		return known{}, err
	}
	k.info, k.rec.FilesystemOnly = info, false
	return k, nil
}

// extend moves a sandbox's end to a time from now, if this is later, or in any case after a resume.
// If several requests resumed the sandbox, the latest end applies. A sandbox without a record gets
// a record and a token.
func (l lives) extend(c call, k known, life time.Duration, resumed bool) (known, error) {
	if !k.exists {
		err := l.h.remember(&k) // it was made without an end, and has none
		return k, err
	}
	if !c.who.May(principal.Fork) {
		if !k.rec.OpenAgent && k.rec.EnvdToken == "" {
			err := l.h.remember(&k)
			return k, err
		}
		return k, nil
	}
	end, seen := l.h.opt.Now().Add(life), k.rec.End
	leave, err := l.h.ends.take(c.ctx, k.info.ID)
	if err != nil {
		return k, err
	}
	defer leave()
	if now, err := l.h.find(c); err == nil && !resumed {
		seen = now.rec.End // another request may have set it
	}
	rec, ok, err := l.h.opt.Records.Update(k.rec, newToken, func(before records.Record, r *records.Record) {
		switch {
		case resumed && before.End.Equal(seen): // no other request has set it since
			r.End = end
		case resumed || !seen.IsZero():
			r.End = latest(seen, before.End, end)
		}
	})
	if err != nil || !ok { // the record of an ended sandbox stays removed
		return k, err
	}
	k.rec = rec
	return k, l.h.opt.Lives.SetLife(c.ctx, k.info.ID, lifeOf(rec))
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// putLife gives a sandbox the end in its record.
func (l lives) putLife(c call, k *known) error {
	if err := l.h.remember(k); err != nil { // first: the deadline keeper reads the record
		return err
	}
	return l.h.opt.Lives.SetLife(c.ctx, k.info.ID, lifeOf(k.rec))
}

// resume is POST /sandboxes/{id}/resume, for older clients.
func (l lives) resume(c call) (answer, error) {
	var req struct {
		connectRequest
		AutoPause bool `json:"autoPause"`
	}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	timeout := int64(defaultTimeoutV1)
	if req.Timeout != nil {
		timeout = *req.Timeout
	}
	life, err := seconds("timeout", timeout, 1)
	if err != nil {
		return answer{}, err
	}
	k, err := l.take(c)
	if err != nil {
		return answer{}, err
	}
	if stateOf(k.info) != statePaused {
		return answer{}, failf(http.StatusConflict, "sandbox %s is already running", sandbox.DNSID(k.info.ID))
	}
	if k, err = l.wake(c, k); err != nil {
		return answer{}, err
	}
	k.rec.Pause = k.rec.Pause || req.AutoPause
	if k, err = l.extend(c, k, life, true); err != nil {
		return answer{}, err
	}
	return answer{http.StatusCreated, l.h.created(k, c.Request).tokensFor(c.who)}, nil
}

// pause is POST /sandboxes/{id}/pause. It returns 409 only for a sandbox that is already paused.
func (l lives) pause(c call) (answer, error) {
	var req connectRequest
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	k, err := l.h.find(c)
	if err != nil {
		return answer{}, err
	}
	already := failf(http.StatusConflict, "sandbox %s is already paused", sandbox.DNSID(k.info.ID))
	if k.info, err = settled(l.h, c, k.info); err != nil {
		return answer{}, err
	}
	if stateOf(k.info) == statePaused {
		return answer{}, already
	}
	k.rec.FilesystemOnly = req.Memory != nil && !*req.Memory
	if err := l.h.opt.Lives.Pause(c.ctx, k.info.ID, k.rec.FilesystemOnly); err != nil {
		return answer{}, l.pauseError(k.info.ID, already, err)
	}
	if k.exists {
		if err := l.h.remember(&k); err != nil {
			return answer{}, err
		}
	}
	return answer{status: http.StatusNoContent}, nil
}

// pauseError distinguishes a sandbox paused meanwhile from one that cannot be paused now.
func (l lives) pauseError(id string, already *apiError, err error) error {
	if !errors.Is(err, sandbox.ErrConflict) {
		return err
	}
	if info, getErr := l.h.opt.Engine.Get(id); getErr == nil && stateOf(info) == statePaused {
		return already
	}
	return failf(http.StatusServiceUnavailable, "%s", err.Error())
}

// setTimeout is POST /sandboxes/{id}/timeout. It sets the end to a time from now, even if that is
// earlier.
func (l lives) setTimeout(c call) (answer, error) {
	var req connectRequest
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	if req.Timeout == nil {
		return answer{}, invalidf("timeout is required")
	}
	life, err := seconds("timeout", *req.Timeout, 0)
	if err != nil {
		return answer{}, err
	}
	return l.endIn(c, life, true)
}

// refresh is POST /sandboxes/{id}/refreshes.
func (l lives) refresh(c call) (answer, error) {
	var req struct {
		Duration int64 `json:"duration"`
	}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	if req.Duration < 0 || req.Duration > 3600 {
		return answer{}, invalidf("duration must be between 0 and 3600 seconds")
	}
	return l.endIn(c, time.Duration(req.Duration)*time.Second, false)
}

func (l lives) endIn(c call, life time.Duration, shorten bool) (answer, error) {
	k, err := l.h.find(c)
	if err != nil {
		return answer{}, err
	}
	// A sandbox paused by the end of its transition keeps the timeout for its resume.
	met := k.info.InTransition()
	if k.info, err = settled(l.h, c, k.info); err != nil {
		return answer{}, err
	}
	if stateOf(k.info) != stateRunning && !met {
		return answer{}, failf(http.StatusNotFound, "sandbox %q is not running", sandbox.DNSID(k.info.ID))
	}
	end := l.h.opt.Now().Add(life)
	leave, err := l.h.ends.take(c.ctx, k.info.ID)
	if err != nil {
		return answer{}, err
	}
	defer leave()
	if now, err := l.h.find(c); err == nil {
		k.rec = now.rec // another request may have set its end
	}
	if shorten || !k.rec.End.IsZero() && end.After(k.rec.End) {
		k.rec.End = end
	}
	if err := l.putLife(c, &k); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}
