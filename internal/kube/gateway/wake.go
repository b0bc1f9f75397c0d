package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
)

// A request to the guest of a paused sandbox resumes it, if the sandbox has auto_resume. If its node refuses that for a
// drain or for lack of memory, the gateway moves the sandbox as for a resume, and sends the request to its new node. A
// client needs the right to resume it. Requests to ports have no credential: the gateway's own key is used for them.

const (
	mostWakes  = 16               // moves for requests to guests, at once
	unwokeTime = 10 * time.Second // no second attempt for the same sandbox and credential
)

// guestRoutes are the routes below /v1/sandboxes/ID that need the guest.
var guestRoutes = []string{"agent", "eval", "exec", "ping", "ports", "services"}

// wakes bounds moves for requests to guests.
type wakes struct {
	turns   chan struct{}
	flights singleflight.Group
	failed  hints // sandboxes that no node has taken
}

// asleepError ends the use of an answer of a node that cannot resume the sandbox of a request.
type asleepError struct{ kept *refused }

func (e *asleepError) Error() string { return "the node cannot resume the sandbox" }

// asleepAnswer returns an asleepError for such an answer. The header is the node's: it drops a guest's.
func asleepAnswer(resp *http.Response) error {
	h, n := hopOf(resp.Request.Context()), nodeOf(resp.Request.Context())
	if h == nil || !h.guest || h.woken || n == nil || !cannotResume(resp.StatusCode, resp.Header) {
		return nil
	}
	return &asleepError{keptAnswer(answer{resp, n})}
}

func cannotResume(status int, h http.Header) bool {
	code := api.Code(h.Get(api.HeaderError))
	return (status == http.StatusServiceUnavailable || status == http.StatusInsufficientStorage) &&
		(code == api.CodeDraining || slices.Contains(shortages, code))
}

// wakeElsewhere moves the sandbox of a request, and sends the request to its new node. If no node takes the sandbox, the
// client gets the answer of the old one.
func wakeElsewhere(g *Gateway, w http.ResponseWriter, h *hop, kept *refused) {
	n, err := wake(g, h, kept.node)
	switch {
	case err != nil:
		g.refuse(w, h.request, failureOf(err))
	case n == nil:
		relay(w, kept.answer().Response)
	default:
		follow(g, w, h, n.Name)
	}
}

// wake moves the sandbox of a request if it is paused at a node and a request may resume it. It returns the new node, or
// nil if the sandbox stays. Requests of one client for the same sandbox share one attempt.
func wake(g *Gateway, h *hop, from *nodes.Node) (*nodes.Node, error) {
	h.woken = true
	r := resumeFor(g, h)
	if r == nil {
		return nil, nil
	}
	key := credentialOf(r) + h.id
	if g.wakes.failed.get(key) != "" {
		return nil, nil
	}
	flight := g.wakes.flights.DoChan(key, func() (any, error) {
		n, err := wakeNow(g, r, h.id, from)
		if n == nil && err == nil {
			g.wakes.failed.set(key, "-", unwokeTime)
		}
		return n, err
	})
	select {
	case result := <-flight:
		n, _ := result.Val.(*nodes.Node)
		return n, result.Err
	case <-h.request.Context().Done():
		return nil, failf(api.CodeBusy, "", "the client has left")
	}
}

// resumeFor returns the request of a resume, with the credential for it. It is nil if there is no credential. It goes on
// when its client leaves, because others may wait for it.
func resumeFor(g *Gateway, h *hop) *http.Request {
	from := h.request
	r := (&http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/v1/sandboxes/" + h.id + "/resume"},
		Header: http.Header{}, RemoteAddr: from.RemoteAddr}).WithContext(context.WithoutCancel(from.Context()))
	if h.port {
		if g.cfg.ResumeKey != "" {
			r.Header.Set("Authorization", "Bearer "+g.cfg.ResumeKey)
		}
	} else {
		for _, name := range []string{"Authorization", api.HeaderKey} {
			if v := from.Header.Get(name); v != "" {
				r.Header.Set(name, v)
			}
		}
	}
	if len(r.Header) == 0 {
		return nil
	}
	return r
}

func wakeNow(g *Gateway, r *http.Request, id string, from *nodes.Node) (*nodes.Node, error) {
	select {
	case g.wakes.turns <- struct{}{}:
		defer func() { <-g.wakes.turns }()
	default:
		return nil, failf(api.CodeBusy, "", "sandbox %s is paused, and its node cannot resume it. The gateway moves %d "+
			"sandboxes already: repeat the request", id, mostWakes)
	}
	if asleep, err := asleep(g, r, id, from); err != nil || !asleep {
		return nil, err
	}
	a, err := move(g, r, id, from, []byte(`{}`))
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(a.Body, maxRefusal))
		_ = a.Body.Close()
		return a.node, nil
	}
	if errors.As(err, new(failure)) {
		return nil, err
	}
	g.cfg.Log.Warn("no node takes a paused sandbox from its own", "sandbox", id, "node", from.Name, "error", err)
	return nil, nil
}

// asleep reports whether a sandbox is paused at a node and a request to its guest may resume it.
func asleep(g *Gateway, r *http.Request, id string, n *nodes.Node) (bool, error) {
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.ListTime)
	defer cancel()
	out, err := request(ctx, r, n, http.MethodGet, "/v1/sandboxes/"+escape(id), nil)
	if err != nil {
		return false, err
	}
	resp, err := n.HTTP.RoundTrip(out)
	if err != nil {
		g.cfg.Log.Warn("request to a node failed", "node", n.Name, "error", err)
		return false, unreachable(n.Name)
	}
	defer resp.Body.Close()
	var sb api.SandboxInfo
	if resp.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(resp.Body, maxLine)).Decode(&sb) != nil {
		return false, nil
	}
	return sb.Status == api.SandboxPaused && cmp.Or(sb.Life, &api.SandboxLifeInfo{}).AutoResume, nil
}

// early moves the sandbox of a request whose body cannot be sent twice, before the body is read, and returns its node.
// Only nodes that are being drained are asked. A node reads the body of a request to a port after it has resumed the
// sandbox, so there Expect tells the gateway in time.
func early(g *Gateway, h *hop, n *nodes.Node) (*nodes.Node, error) {
	facts, _ := n.Facts()
	r := h.request
	if !facts.Draining || !h.guest || r.Body == nil || r.Body == http.NoBody ||
		r.ContentLength >= 0 && r.ContentLength <= mostReplayed {
		return n, nil
	}
	if h.port {
		r.Header.Set("Expect", "100-continue")
		return n, nil
	}
	to, err := wake(g, h, n)
	if to == nil {
		return n, err
	}
	return to, nil
}
