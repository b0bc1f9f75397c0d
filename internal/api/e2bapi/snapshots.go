package e2bapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/page"
	"github.com/forkd/forkd/internal/api/e2bapi/target"
	"github.com/forkd/forkd/internal/api/e2bapi/templates"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// snapshots serves templates, snapshots of sandboxes, and forks.
type snapshots struct{ h *Handler }

// madeTag begins the tags of snapshots without a given name.
const madeTag = "e2b-"

func newTag() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return madeTag + hex.EncodeToString(b[:])
}

type snapshotInfo struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

func shownSnapshot(c call, tag string) snapshotInfo {
	s := snapshotInfo{ID: templates.SnapshotID(tag), Names: []string{}}
	if name := c.short(tag); !strings.HasPrefix(name, madeTag) {
		s.Names = append(s.Names, templates.Name(name))
	}
	return s
}

// short returns a tag in the form its tenant may use, without the tenant's name as prefix.
func (c call) short(tag string) string {
	if c.who.Operator() {
		return tag
	}
	return strings.TrimPrefix(tag, c.who.Tenant+"-")
}

// called reports whether a tag matches a client's name for it.
func (c call) called(tag, name string) bool {
	return templates.Matches(tag, name) || templates.Matches(c.short(tag), name)
}

// snapshot is POST /sandboxes/{id}/snapshots. The sandbox keeps running.
func (ss snapshots) snapshot(c call) (answer, error) {
	var req struct {
		Name   string `json:"name"`
		Memory *bool  `json:"memory"`
	}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	if req.Memory != nil && !*req.Memory {
		return answer{}, invalidf("snapshots without memory are not supported by this server")
	}
	tag := newTag()
	if req.Name != "" {
		var err error
		if tag, err = templates.Tag(req.Name); err != nil {
			return answer{}, err
		}
	}
	k, err := ss.h.findRunning(c)
	if err != nil {
		return answer{}, err
	}
	made, err := c.engine.Branch(c.ctx, sandbox.BranchRequest{SandboxID: k.info.ID, Tag: tag})
	if err != nil {
		return answer{}, err
	}
	ss.h.opt.Note(c.ctx, Act{Snapshot: made.Snapshot.Tag})
	return answer{http.StatusCreated, shownSnapshot(c, made.Snapshot.Tag)}, nil
}

// listSnapshots is GET /snapshots. It returns the snapshots branched from sandboxes.
func (ss snapshots) listSnapshots(c call) (answer, error) {
	q := c.URL.Query()
	limit, err := page.Limit(q.Get("limit"))
	if err != nil {
		return answer{}, invalidf("limit: %v", err)
	}
	all, err := c.engine.ListSnapshots(c.ctx)
	if err != nil {
		return answer{}, err
	}
	all = slices.DeleteFunc(all, func(s sandbox.SnapshotInfo) bool {
		of, name := q.Get("sandboxID"), q.Get("name")
		return s.BranchedFrom == "" || s.Transient || ss.h.isLayer(s.Tag) || s.Status == sandbox.SnapshotFailed ||
			of != "" && s.BranchedFrom != target.ID(of) || name != "" && !c.called(s.Tag, name)
	})
	slices.SortFunc(all, func(a, b sandbox.SnapshotInfo) int {
		return -cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Tag, b.Tag))
	})
	some, next, err := page.Of(all, q.Get("nextToken"), limit, func(s sandbox.SnapshotInfo) page.Key {
		return page.Key{At: s.CreatedAt, ID: s.Tag}
	}, false)
	if err != nil {
		return answer{}, invalidf("nextToken: %v", err)
	}
	if next != "" {
		c.w.Header().Set(headerNext, next)
	}
	out := make([]snapshotInfo, 0, len(some))
	for _, s := range some {
		out = append(out, shownSnapshot(c, s.Tag))
	}
	return answer{http.StatusOK, out}, nil
}

// fork is POST /sandboxes/{id}/fork. It makes sandboxes with the current memory and disk.
func (ss snapshots) fork(c call) (answer, error) {
	req := struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}{}
	if err := c.decode(&req); err != nil {
		return answer{}, err
	}
	count, timeout := 1, int64(defaultTimeoutV1)
	if req.Count != nil {
		count = *req.Count
	}
	if req.Timeout != nil {
		timeout = *req.Timeout
	}
	if count < 1 || count > sandbox.MaxFork {
		return answer{}, invalidf("count must be between 1 and %d", sandbox.MaxFork)
	}
	life, err := seconds("timeout", timeout, 1)
	if err != nil {
		return answer{}, err
	}
	k, err := ss.h.findRunning(c)
	if err != nil {
		return answer{}, err
	}
	made, err := ss.forkOf(c, k, life, count)
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusCreated, ss.forked(c, made)}, nil
}

type forkedSandbox struct {
	Sandbox *createdSandbox `json:"sandbox,omitempty"`
	Error   *apiError       `json:"error,omitempty"`
}

func (ss snapshots) forked(c call, made []child) []forkedSandbox {
	out := make([]forkedSandbox, 0, len(made))
	for _, m := range made {
		if m.err != nil {
			out = append(out, forkedSandbox{Error: apiErrorOf(m.err)})
			continue
		}
		view := ss.h.created(m.known, c.Request).tokensFor(c.who)
		out = append(out, forkedSandbox{Sandbox: &view})
	}
	return out
}

// forkOf branches a sandbox with children. The quota for the children is checked before the sandbox
// is paused for the branch. The branch's tag is deleted when the children have its content.
func (ss snapshots) forkOf(c call, k known, life time.Duration, n int) ([]child, error) {
	p := plan{tag: newTag(), rec: k.rec, life: life, secure: !k.rec.OpenAgent}
	p.rec.EnvdToken = ""
	ss.h.opt.Note(c.ctx, Act{Snapshot: p.tag, Count: n})
	// The children get the policy and the privacy of ports from the source, by the snapshot.
	res, err := c.engine.Branch(c.ctx, sandbox.BranchRequest{SandboxID: k.info.ID, Tag: p.tag, N: n, Env: p.env(),
		Internal: true, Life: ss.h.firstLife(p)})
	if res.Fork == nil && err != nil {
		return nil, err
	}
	defer ss.drop(c, p.tag)
	if err := allFailed(*res.Fork); err != nil {
		return nil, err
	}
	return ss.h.recordAll(c.ctx, p, *res.Fork), nil
}

// drop deletes the snapshot that forks were made of.
func (ss snapshots) drop(c call, tag string) {
	err := c.engine.DeleteSnapshot(context.WithoutCancel(c.ctx), tag, sandbox.DeleteOptions{Force: true})
	if err != nil && !isNotFound(err) {
		ss.h.opt.Log.Warn("delete what a fork was made of", "snapshot", tag, "error", err)
	}
}

// deleteTemplate is DELETE /templates/{id}, also for snapshots.
func (ss snapshots) deleteTemplate(c call) (answer, error) {
	if t, ok := builds(ss).template(c.who.Tenant, c.PathValue("id")); ok {
		return builds(ss).delete(c, t)
	}
	gone := failf(http.StatusNotFound, "template %q not found", sandbox.Clip(c.PathValue("id")))
	tag, err := templates.Tag(c.PathValue("id"))
	if err != nil {
		return answer{}, gone
	}
	err = c.engine.DeleteSnapshot(c.ctx, tag, sandbox.DeleteOptions{})
	switch {
	case isNotFound(err):
		return answer{}, gone
	case errors.Is(err, sandbox.ErrConflict):
		return answer{}, invalidf("%s", err.Error())
	case err != nil:
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}
