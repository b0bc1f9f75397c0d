package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/placement"
	"github.com/forkd/forkd/internal/leaf/ctxsleep"
)

// question is one request that any of several nodes may serve.
type question struct {
	from *http.Request
	body []byte
	// id is sent as Idempotency-Key. If it is empty, the request is never sent twice.
	id string
	// want describes the sandboxes for the choice.
	want placement.Request
	// overflows reports whether nodes without the snapshot may copy it for the request.
	overflows bool
	// prepare is called before a node is asked for the first time. It may be nil.
	prepare func(ctx context.Context, n *nodes.Node) error
}

// answer is the node's answer to a question. Its body is open.
type answer struct {
	*http.Response
	node *nodes.Node
}

// finalError ends a claim with an answer that another node would give, too.
type finalError struct{ answer }

func (finalError) Error() string { return "the node refused the request" }

// place asks nodes until one accepts, or gives an answer that is the client's. If no node takes the request, it
// returns the last refusal. An error without an answer is a failure.
func (g *Gateway) place(ctx context.Context, q question) (answer, error) {
	var last *refused
	keep := func(a *refused) {
		if a != nil && (last == nil || a.status != http.StatusNotFound) {
			last = a
		}
	}
	if q.want.Snapshot == "" {
		q.want.Holders = false
	}
	sticky := ""
	if q.id != "" && q.from.Header.Get("Idempotency-Key") != "" {
		sticky = keyOf(q.from, q.id)
		if q.want.Node = g.keys.get(sticky); q.want.Node != "" {
			q.want.Holders = false // the node decides: it may have made the sandboxes already
		}
	}
	a, err := g.claim(ctx, q, sticky, keep)
	if none := new(placement.NoNodeError); errors.As(err, &none) && q.want.Holders && last == nil {
		// The snapshot may be newer than the facts.
		if hint := g.hints.get(q.want.Snapshot); hint != "" {
			hinted := q
			hinted.want.Holders, hinted.want.Node = false, hint
			a, err = g.claim(ctx, hinted, sticky, keep)
		}
		if errors.As(err, &none) && last == nil && none.Reasons[lacksParent] == len(g.cfg.Nodes.All()) {
			q.want.Holders = false
			a, err = g.claim(ctx, q, sticky, keep)
		}
	}
	if err != nil && q.want.Holders {
		if other, spillErr := g.spill(ctx, q, sticky, err); spillErr == nil {
			return other, nil
		} else if errors.As(spillErr, new(*placement.UnknownError)) || lostOnce(spillErr) {
			err = spillErr // it may have made the sandboxes
		}
	}
	var silent *placement.UnknownError
	switch {
	case err == nil:
		return a, nil
	case errors.As(err, &silent):
		g.metrics.asks.WithLabelValues("unknown").Inc()
		return answer{}, failf(api.CodeTimeout, api.ReasonNodeSilent, "%v", silentText(silent))
	case lostOnce(err):
		return answer{}, err
	case last != nil && noTaker(err):
		return last.answer(), nil
	}
	return answer{}, noNode(g, ctx, q.from, err)
}

// noTaker reports that no node took a request.
func noTaker(err error) bool {
	return errors.As(err, new(*placement.NoNodeError)) || errors.As(err, new(*placement.GaveUpError))
}

// lostOnce reports that the answer to a request without an id was lost.
func lostOnce(err error) bool { return errors.As(err, new(failure)) && !noTaker(err) }

// lacksParent is the board's reason against a node without the snapshot.
const lacksParent = "without the snapshot"

// silentText names node and request, without the addresses in the network error.
func silentText(e *placement.UnknownError) string {
	short := *e
	short.Err = errors.New("no answer")
	if errors.Is(e.Err, context.DeadlineExceeded) {
		short.Err = errors.New("the time is over")
	}
	return short.Error()
}

// noNode returns the failure for a request that no node was asked for. Its reasons are for clients with a credential
// only.
func noNode(g *Gateway, ctx context.Context, r *http.Request, err error) error {
	up := g.up()
	for _, n := range up[:min(len(up), 3)] {
		switch g.probe(r.WithContext(ctx), n, "/version") {
		case 0:
		case http.StatusOK:
			return failf(api.CodeNoResources, api.ReasonNoNode, "%v", err)
		default:
			return failf(api.CodeUnauthorized, "", "the token or key is missing or wrong")
		}
	}
	return failf(api.CodeNoResources, api.ReasonNoNode, "no node of the cluster answers")
}

// claim is one walk over nodes. It remembers the node under the name sticky, unless that is empty.
func (g *Gateway) claim(ctx context.Context, q question, sticky string,
	keep func(*refused)) (a answer, err error) {
	before, repeats := "", 0
	_, err = g.cfg.Board.Place(ctx, q.want, func(ctx context.Context, name string) error {
		if name != before {
			before, repeats = name, 0
		} else if repeats++; !ctxsleep.For(ctx, time.Duration(repeats*repeats)*200*time.Millisecond) {
			return ctx.Err()
		}
		n := g.cfg.Nodes.ByName(name)
		if n == nil || n.Foreign() {
			return &placement.Refusal{Kind: placement.Unreachable, Err: errors.New("the node has left the list")}
		}
		if q.prepare != nil && repeats == 0 {
			if err := q.prepare(ctx, n); err != nil {
				return err
			}
		}
		if sticky != "" {
			g.keys.set(sticky, name, keyTime)
		}
		var askErr error
		a, askErr = g.ask(ctx, n, q)
		if askErr != nil && !placement.Unanswered(askErr) && q.want.Node == "" && repeats == 0 {
			g.keys.drop(sticky) // it has made no sandbox
		}
		var r *refused
		if errors.As(askErr, &r) {
			keep(r)
		}
		g.metrics.asks.WithLabelValues(resultOf(askErr)).Inc()
		return askErr
	})
	if final := (finalError{}); errors.As(err, &final) {
		return final.answer, nil
	}
	return a, err
}

// resultOf names the result of one question in metrics.
func resultOf(err error) string {
	var r *placement.Refusal
	switch {
	case err == nil:
		return "accepted"
	case errors.As(err, &r):
		return [...]string{"full", "busy", "unreachable", "absent"}[r.Kind]
	case errors.As(err, new(finalError)):
		return "refused"
	}
	return "silent"
}

// refused is an answer without side effects, which is read to its end.
type refused struct {
	status int
	header http.Header
	body   []byte
	node   *nodes.Node
}

func (*refused) Error() string { return "the node refused the request" }

func (r *refused) answer() answer {
	body := io.NopCloser(bytes.NewReader(r.body))
	return answer{&http.Response{StatusCode: r.status, Header: r.header, Body: body}, r.node}
}

// ask sends a question to one node, and classifies the answer for placement.Claim.
func (g *Gateway) ask(ctx context.Context, n *nodes.Node, q question) (answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(g.cfg.AnswerTime, func() { cancel(context.DeadlineExceeded) })
	out, err := request(ctx, q.from, n, q.from.Method, q.from.URL.RequestURI(), bytes.NewReader(q.body))
	if err != nil {
		timer.Stop()
		cancel(nil)
		return answer{}, err
	}
	out.Header.Del("Idempotency-Key")
	if q.id != "" {
		out.Header.Set("Idempotency-Key", q.id)
	}
	resp, err := n.HTTP.RoundTrip(out)
	if !timer.Stop() && err == nil {
		_ = resp.Body.Close() // the context has ended
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel(nil)
		return answer{}, g.lost(ctx, n, q, err)
	}
	resp.Body = ending{resp.Body, func() { cancel(nil) }}
	if resp.StatusCode < 300 {
		return answer{resp, n}, nil
	}
	kept := keptAnswer(answer{resp, n})
	if ofProxy(kept) {
		return answer{}, g.lost(ctx, n, q, fmt.Errorf("status %d, not of forkd", resp.StatusCode))
	}
	return answer{}, refusal(kept)
}

// ofProxy reports whether an error is not of a daemon, but of a proxy or a sidecar before it, which lost the daemon's
// answer. Each error of a daemon has its code in a header, and that of the API in its body.
func ofProxy(r *refused) bool {
	switch r.status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		var e api.Error
		return r.header.Get(api.HeaderError) == "" && (json.Unmarshal(r.body, &e) != nil || e.Code == "")
	}
	return false
}

// ending ends the context of a request when its answer is closed.
type ending struct {
	io.ReadCloser
	end func()
}

func (e ending) Close() error {
	defer e.end()
	return e.ReadCloser.Close()
}

// lost classifies a request without an answer.
func (g *Gateway) lost(ctx context.Context, n *nodes.Node, q question, err error) error {
	g.cfg.Log.Warn("no answer from a node", "node", n.Name, "request", q.id, "error", err)
	op := new(net.OpError)
	if errors.As(err, &op) && op.Op == "dial" || errors.As(err, new(*tls.CertificateVerificationError)) {
		n.Look()
		return &placement.Refusal{Kind: placement.Unreachable, Err: unreachable(n.Name)}
	}
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	if q.id == "" {
		return failf(api.CodeTimeout, api.ReasonNodeSilent, "node %s sent no answer: it may have done the request",
			n.Name)
	}
	return &placement.UnknownError{Node: n.Name, RequestID: q.id, Err: err}
}

// maxRefusal limits the body of an error, in bytes.
const maxRefusal = 64 << 10

// keptAnswer reads an error to its end.
func keptAnswer(a answer) *refused {
	body, err := io.ReadAll(io.LimitReader(a.Body, maxRefusal))
	_ = a.Body.Close()
	if err != nil {
		body = nil
	}
	a.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return &refused{a.StatusCode, a.Header, body, a.node}
}

// refusal returns a Refusal for errors without side effects that another node may not give, and otherwise a finalError.
func refusal(r *refused) error {
	var e api.Error
	_ = json.Unmarshal(r.body, &e)
	code := cmp.Or(e.Code, api.Code(r.header.Get(api.HeaderError))) // E2B's errors have other fields
	switch {
	case slices.Contains(shortages, code),
		r.status == http.StatusInsufficientStorage:
		return &placement.Refusal{Kind: placement.Full, Err: r}
	case e.Reason == api.ReasonAnswerNoRoom:
	case r.status == http.StatusServiceUnavailable:
		return &placement.Refusal{Kind: placement.Busy, Err: r}
	case r.status == http.StatusNotFound:
		return &placement.Refusal{Kind: placement.Absent, Err: r}
	}
	return finalError{r.answer()}
}
