package sandboxes

import (
	"context"
	"errors"
	"log/slog"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/api/peers"
	"github.com/forkd/forkd/internal/api/routing"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/roles"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// Carrier has facts of another API about sandboxes. records.Store implements it.
type Carrier interface {
	// Carried returns the facts about a sandbox for another daemon, and a secret among them. Both may be empty.
	Carried(id string) (facts []byte, secret string, err error)
	// Receive stores the facts from another daemon. It may be called again.
	Receive(id string, facts []byte) error
	// Remove removes the facts about a sandbox.
	Remove(id string) error
}

// MoverConfig has the parts of a mover.
type MoverConfig struct {
	Peers *peers.Client // nil: sandboxes of other daemons are refused
	E2B   Carrier       // may be nil
	// Exists finds a sandbox of any owner.
	Exists func(id string) (sandbox.Info, error)
	Log    *slog.Logger
	Node   string // the name of the daemon's node, or empty
}

// mostTaken is the number of sandboxes taken from peers at the same time.
const mostTaken = 4

// Mover takes paused sandboxes from other daemons.
type Mover struct {
	MoverConfig
	turns chan struct{}
}

// NewMover returns a mover.
func NewMover(c MoverConfig) *Mover { return &Mover{c, make(chan struct{}, mostTaken)} }

// Fetch takes a sandbox from one of the peers if it is not here. Without peers it settles an earlier attempt, if there
// is one.
func (m *Mover) Fetch(ctx context.Context, e roles.Sandboxes, id string, from []string) error {
	if _, err := e.Get(id); !errors.Is(err, sandbox.ErrNotFound) && !sandbox.IsBeingTaken(err) {
		return nil // the resume reports the error, if there is one
	}
	id = sandbox.CanonicalID(id)
	tenant := principal.From(ctx).Tenant
	req := sandbox.TakeRequest{ID: id, Node: m.Node}
	if m.Peers != nil {
		req.Again = func(name string) (sandbox.Giver, error) { return m.Peers.Giver(name, tenant) }
	}
	_, err := e.Take(ctx, req)
	if !errors.Is(err, sandbox.ErrNotFound) || len(from) == 0 {
		return ignoreMissing(err)
	}
	if m.Peers == nil {
		return apierror.New(api.CodeUnsupported, "",
			"this daemon takes no sandboxes from others: its operator has not allowed peers")
	}
	select {
	case m.turns <- struct{}{}:
		defer func() { <-m.turns }()
	default:
		return apierror.New(api.CodeBusy, "", "the daemon takes %d sandboxes from others already", mostTaken)
	}
	giver, err := m.Peers.FindSandbox(ctx, from, id, tenant)
	if err != nil {
		return err
	}
	req.From = giver
	h, err := giver.Describe(ctx, id)
	if err != nil {
		return err
	}
	if len(h.E2B) == 0 {
		_, err = e.Take(ctx, req)
		return err
	}
	return m.takeWith(ctx, e, req, h.E2B)
}

// takeWith takes a sandbox with its facts of E2B's API. They are stored before the sandbox is listed, so that no request
// meets it without its token.
func (m *Mover) takeWith(ctx context.Context, e roles.Sandboxes, req sandbox.TakeRequest, facts []byte) error {
	if m.E2B == nil {
		return apierror.New(api.CodeUnsupported, api.ReasonSandboxBound,
			"sandbox %s was made through E2B's API, which this daemon does not serve", req.ID)
	}
	// A peer must not replace the token of another tenant's sandbox, which the tenant's view does not show.
	if _, err := m.Exists(req.ID); !errors.Is(err, sandbox.ErrNotFound) {
		return apierror.New(api.CodeConflict, "", "a sandbox with the id %s is here already", req.ID)
	}
	if err := m.E2B.Receive(req.ID, facts); err != nil {
		return apierror.New(api.CodeInvalid, "", "peer %s: the E2B record of sandbox %s is not usable: %v", req.From.Name(),
			req.ID, err)
	}
	_, err := e.Take(ctx, req)
	if err == nil || sandbox.IsBeingTaken(err) {
		// While the snapshot was copied, the facts may have been removed as those of an ended sandbox.
		if err := m.E2B.Receive(req.ID, facts); err != nil {
			m.Log.Error("store the E2B record of a sandbox that was taken", "sandbox", req.ID, "err", err)
		}
		return err
	}
	if _, getErr := m.Exists(req.ID); errors.Is(getErr, sandbox.ErrNotFound) {
		if err := m.E2B.Remove(req.ID); err != nil {
			m.Log.Warn("remove the E2B record of a sandbox that was not taken", "sandbox", req.ID, "err", err)
		}
	}
	return err
}

// ignoreMissing leaves the error of a missing sandbox to the resume.
func ignoreMissing(err error) error {
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	return err
}

type handoverInput struct {
	routing.IDPath
	Body api.HandoverRequest
}

// handover gives a paused sandbox to another daemon.
func (s *sandboxRoutes) handover(ctx context.Context, in *handoverInput) (*routing.Body[api.Handover], error) {
	q := in.Body
	if q.Tenant != "" {
		if !keys.IsTenant(q.Tenant) {
			return nil, apierror.New(api.CodeInvalid, "", "tenant %q: want 1 to 24 small letters, digits or _",
				ellipsis.Clip(q.Tenant, 80))
		}
		who := principal.From(ctx)
		who.Tenant = q.Tenant
		ctx = principal.With(ctx, who)
	}
	e := s.engine(ctx)
	if sb, err := e.Get(in.ID); err == nil {
		if name := s.book.Of(sb.ID); name != "" {
			return nil, apierror.New(api.CodeUnsupported, api.ReasonSandboxBound,
				"sandbox %s belongs to workspace %s and cannot move to another daemon", sb.ID, name)
		}
	}
	h, err := e.Handover(ctx, in.ID, sandbox.HandoverRequest{Claim: q.Claim, PausedIn: q.PausedIn,
		PausedHash: q.PausedHash, To: q.Node})
	if err != nil {
		return nil, err
	}
	out := api.Handover{ID: h.ID, Owner: h.Owner, PausedIn: h.PausedIn, PausedHash: h.PausedHash, Record: string(h.Record)}
	if q.Claim == "" && s.mover.E2B != nil {
		facts, _, err := s.mover.E2B.Carried(h.ID)
		if err != nil {
			return nil, apierror.New(api.CodeUnsupported, api.ReasonSandboxBound,
				"sandbox %s cannot move to another daemon: %v", h.ID, err)
		}
		out.E2B = string(facts)
	}
	return routing.Answer(out), nil
}
