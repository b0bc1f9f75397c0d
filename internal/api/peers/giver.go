package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// handoverTime bounds a request about a sandbox. The giver may wait for a transition of the sandbox.
const handoverTime = time.Minute

// maxAnswer limits an answer about a sandbox. The record is in it as a text.
const maxAnswer = 4 * sandbox.MaxHandover

// Giver is a peer that has a paused sandbox. It implements sandbox.Giver.
type Giver struct {
	c      *Client
	url    *url.URL
	tenant string
	found  *sandbox.Handover // by FindSandbox
}

// Giver returns the peer with this URL, asked for a tenant's sandboxes; of all tenants if it is empty.
func (c *Client) Giver(text, tenant string) (*Giver, error) {
	u, err := c.peerOf(text)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.ErrForbidden, "", "%w", err)
	}
	return &Giver{c: c, url: u, tenant: tenant}, nil
}

// FindSandbox asks peers in their order for a paused sandbox, and returns the first that has it.
func (c *Client) FindSandbox(ctx context.Context, urls []string, id, tenant string) (*Giver, error) {
	if len(urls) == 0 || len(urls) > MaxPeers {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "", "%d peers, want 1 to %d", len(urls), MaxPeers)
	}
	var all []*Giver
	for _, text := range urls {
		g, err := c.Giver(text, tenant)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	var last error
	for _, g := range all {
		h, err := g.Describe(ctx, id)
		switch {
		case err == nil:
			g.found = &h
			return g, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, sandbox.ErrConflict), errors.Is(err, sandbox.ErrUnsupported):
			return nil, err // it has the sandbox, and says why it cannot move
		}
		if last == nil || !errors.Is(err, sandbox.ErrNotFound) {
			last = err
		}
	}
	if errors.Is(last, sandbox.ErrNotFound) {
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "", "no peer has sandbox %s: %w", sandbox.Clip(id), last)
	}
	return nil, last
}

// Name implements sandbox.Giver.
func (g *Giver) Name() string { return g.url.String() }

// Describe implements sandbox.Giver.
func (g *Giver) Describe(ctx context.Context, id string) (sandbox.Handover, error) {
	if g.found != nil && g.found.ID == id {
		return *g.found, nil
	}
	a, err := g.ask(ctx, id, api.HandoverRequest{})
	if err != nil {
		return sandbox.Handover{}, err
	}
	h := sandbox.Handover{ID: a.ID, Owner: a.Owner, PausedIn: a.PausedIn, PausedHash: a.PausedHash,
		Record: []byte(a.Record), E2B: []byte(a.E2B)}
	if h.ID != id || h.Owner != "" && !keys.IsTenant(h.Owner) || g.tenant != "" && h.Owner != g.tenant {
		return sandbox.Handover{}, sandbox.Errorf(sandbox.ErrInvalid, "", "peer %s offers another sandbox than %s",
			g.url.Host, sandbox.Clip(id))
	}
	return h, nil
}

// Snapshot implements sandbox.Giver.
func (g *Giver) Snapshot(ctx context.Context, h sandbox.Handover, receive func(io.Reader) error) error {
	s, err := g.c.Open(ctx, []string{g.url.String()}, h.PausedIn, g.tenant)
	if err != nil {
		return err
	}
	if s.Tag != h.PausedIn || s.Owner != h.Owner {
		return sandbox.Errorf(sandbox.ErrInvalid, "", "peer %s has another snapshot under the tag %s", g.url.Host,
			sandbox.Clip(h.PausedIn))
	}
	return s.Receive(receive)
}

// Give implements sandbox.Giver.
func (g *Giver) Give(ctx context.Context, id string, req sandbox.HandoverRequest) error {
	_, err := g.ask(ctx, id, api.HandoverRequest{Claim: req.Claim, PausedIn: req.PausedIn, PausedHash: req.PausedHash,
		Node: req.To})
	return err
}

// ask sends one request about a sandbox. Only answers of a daemon have the kinds of package sandbox.
func (g *Giver) ask(ctx context.Context, id string, req api.HandoverRequest) (out api.Handover, err error) {
	ctx, cancel := context.WithTimeout(ctx, handoverTime)
	defer cancel()
	failed := func(err error) error {
		return sandbox.Errorf(sandbox.ErrNoResources, "", "ask peer %s for sandbox %s: %w", g.url.Host, sandbox.Clip(id), err)
	}
	req.Tenant = g.tenant
	body, err := json.Marshal(req)
	if err != nil {
		return out, err
	}
	u := *g.url
	u.Path = "/v1/sandboxes/" + id + "/handover"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return out, failed(err)
	}
	r.Header.Set("Content-Type", "application/json")
	key, err := g.c.key()
	if err != nil {
		return out, failed(fmt.Errorf("read the key for peers: %w", err))
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := g.c.http.Do(r)
	if err != nil {
		var in *url.Error
		if errors.As(err, &in) {
			err = in.Err // without the URL
		}
		return out, failed(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return out, failed(err)
	case resp.StatusCode != http.StatusOK:
		return out, g.refusal(resp.StatusCode, b)
	case len(b) > maxAnswer:
		return out, failed(errors.New("its answer is too large"))
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, failed(err)
	}
	return out, nil
}

// refusal returns an answer that is an error.
func (g *Giver) refusal(status int, body []byte) error {
	var e api.Error
	_ = json.Unmarshal(body, &e)
	text := fmt.Sprintf("peer %s answered %d: %s", g.url.Host, status, sandbox.Clip(e.Message))
	switch {
	case status == http.StatusNotFound && e.Code == api.CodeNotFound && e.Reason == api.ReasonSandboxMoved:
		return sandbox.Errorf(sandbox.ErrNotFound, sandbox.ReasonSandboxMoved, "%s", text)
	case status == http.StatusNotFound && e.Code == api.CodeNotFound:
		return sandbox.Errorf(sandbox.ErrNotFound, "", "%s", text)
	case e.Code == api.CodeUnsupported && e.Reason == api.ReasonSandboxBound:
		return sandbox.Errorf(sandbox.ErrUnsupported, sandbox.ReasonSandboxBound, "%s", text)
	case status == http.StatusConflict && e.Code == api.CodeConflict:
		return sandbox.Errorf(sandbox.ErrConflict, "", "%s", text)
	}
	return sandbox.Errorf(sandbox.ErrNoResources, "", "%s", text)
}
