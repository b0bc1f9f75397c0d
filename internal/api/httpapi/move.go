package httpapi

import (
	"context"
	"errors"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/peers"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/ellipsis"
)

// mover takes paused sandboxes from other daemons.
type mover struct {
	peers *peers.Client // nil: sandboxes of other daemons are refused
	node  string
	turns chan struct{}
}

func newMover(opt Options) *mover {
	return &mover{peers: opt.Peers, node: opt.Node.Name, turns: make(chan struct{}, mostCopies)}
}

// fetch takes a sandbox from one of the peers if it is not here. Without peers it settles an earlier attempt, if there
// is one.
func (m *mover) fetch(ctx context.Context, e Sandboxes, id string, from []string) error {
	if _, err := e.Get(id); !errors.Is(err, sandbox.ErrNotFound) && !isUnsettled(err) {
		return nil // the resume reports the error, if there is one
	}
	id = sandbox.CanonicalID(id)
	tenant := principal.From(ctx).Tenant
	req := sandbox.TakeRequest{ID: id, Node: m.node}
	if m.peers != nil {
		req.Again = func(name string) (sandbox.Giver, error) { return m.peers.Giver(name, tenant) }
	}
	_, err := e.Take(ctx, req)
	if !errors.Is(err, sandbox.ErrNotFound) || len(from) == 0 {
		return ignoreMissing(err)
	}
	if m.peers == nil {
		return fail(api.CodeUnsupported, "", "this daemon takes no sandboxes from others: its operator has not allowed peers")
	}
	select {
	case m.turns <- struct{}{}:
		defer func() { <-m.turns }()
	default:
		return fail(api.CodeBusy, "", "the daemon takes %d sandboxes from others already", mostCopies)
	}
	giver, err := m.peers.FindSandbox(ctx, from, id, tenant)
	if err != nil {
		return err
	}
	req.From = giver
	_, err = e.Take(ctx, req)
	return err
}

func isUnsettled(err error) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.Reason() == sandbox.ReasonSandboxUnsettled
}

// ignoreMissing leaves the error of a missing sandbox to the resume.
func ignoreMissing(err error) error {
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	return err
}

type handoverInput struct {
	IDPath
	Body api.HandoverRequest
}

// handover gives a paused sandbox to another daemon.
func (s *sandboxRoutes) handover(ctx context.Context, in *handoverInput) (*body[api.Handover], error) {
	q := in.Body
	if q.Tenant != "" {
		if !keys.IsTenant(q.Tenant) {
			return nil, fail(api.CodeInvalid, "", "tenant %q: want 1 to 24 small letters, digits or _",
				ellipsis.Clip(q.Tenant, 80))
		}
		who := principal.From(ctx)
		who.Tenant = q.Tenant
		ctx = principal.With(ctx, who)
	}
	e := s.engine(ctx)
	if sb, err := e.Get(in.ID); err == nil {
		if name := s.book.Of(sb.ID); name != "" {
			return nil, fail(api.CodeUnsupported, api.ReasonSandboxBound,
				"sandbox %s belongs to workspace %s and cannot move to another daemon", sb.ID, name)
		}
	}
	h, err := e.Handover(ctx, in.ID, sandbox.HandoverRequest{Claim: q.Claim, PausedIn: q.PausedIn,
		PausedHash: q.PausedHash, To: q.Node})
	if err != nil {
		return nil, err
	}
	return &body[api.Handover]{api.Handover{ID: h.ID, Owner: h.Owner, PausedIn: h.PausedIn, PausedHash: h.PausedHash,
		Record: string(h.Record)}}, nil
}
