package gateway

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
)

// list is the kind of a list: its order, and whether a name appears once.
type list int

const (
	unordered     list = iota // node after node
	bySandbox                 // by time, index and id
	byTag                     // by tag
	byName                    // by name
	oncePerTag                // by tag, each once
	oncePerName               // by name, each once
	newestReceipt             // by time, the newest first
)

// maxElement limits one element of a node's list, in bytes.
const maxElement = 1 << 20

// element is one element of a list with the fields that order it.
type element struct {
	raw   json.RawMessage
	Tag   string `json:"tag"`
	Name  string `json:"name"`
	ID    string `json:"id"`
	Made  int64  `json:"created_at_unix"`
	Index int    `json:"index"`
	AtMS  int64  `json:"at_unix_ms"`
}

func (l list) compare(a, b *element) int {
	switch l {
	case bySandbox:
		return cmp.Or(cmp.Compare(a.Made, b.Made), cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	case byTag, oncePerTag:
		return cmp.Compare(a.Tag, b.Tag)
	case byName, oncePerName:
		return cmp.Compare(a.Name, b.Name)
	case newestReceipt:
		return cmp.Or(cmp.Compare(b.AtMS, a.AtMS), cmp.Compare(b.ID, a.ID))
	}
	return 0
}

// same reports whether the second of two neighbours is left out.
func (l list) same(a, b *element) bool {
	return l == oncePerTag && a.Tag == b.Tag || l == oncePerName && a.Name == b.Name
}

// stream is a node's list as it arrives.
type stream struct {
	node  *nodes.Node
	resp  *http.Response
	end   context.CancelFunc
	dec   *json.Decoder
	bound *bounded
	next  *element // nil at the end
}

// list merges the lists of all nodes. It holds one element of each in memory. Nodes that do not answer are named in
// Forkd-Nodes-Missing. A node that breaks off breaks the answer off.
func (g *Gateway) list(w *writer, r *http.Request, t target) {
	if id := r.URL.Query().Get("sandbox"); id != "" {
		if n := g.cfg.Nodes.ByKey(keyIn(id)); n != nil {
			g.forward(w, r, n)
			return
		}
	}
	parts, missing, refusal := g.openAll(r, "")
	defer func() {
		for _, s := range parts {
			s.close()
		}
	}()
	if len(parts) == 0 {
		refuseList(g, w, r, refusal)
		return
	}
	if refusal != nil {
		_ = refusal.Body.Close()
	}
	if len(missing) > 0 {
		g.metrics.missing.Inc()
	}
	tellMissing(w, missing)
	w.Header().Set("Content-Type", "application/json")
	if !merge(w, parts, t.list, limitOf(r, t.list)) {
		panic(http.ErrAbortHandler) // the answer must not look complete
	}
}

func refuseList(g *Gateway, w *writer, r *http.Request, refusal *http.Response) {
	if refusal != nil {
		relay(w, refusal)
		return
	}
	g.refuse(w, r, failf(api.CodeNoResources, api.ReasonNoNode, "no node of the cluster answers"))
}

// limitOf returns the limit of a list of receipts; 0 means no limit.
func limitOf(r *http.Request, l list) int {
	if l != newestReceipt {
		return 0
	}
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && n > 0 {
		return n
	}
	return 100 // the route's default
}

// merge reports whether all parts were read to their ends and sent.
func merge(w *writer, parts []*stream, l list, limit int) bool {
	out := bufio.NewWriterSize(w, 32<<10)
	_ = out.WriteByte('[')
	var last *element
	for n := 0; limit == 0 || n < limit; {
		s := first(parts, l)
		if s == nil {
			break
		}
		e := s.next
		if err := s.advance(); err != nil {
			return false
		}
		if last != nil && l.same(last, e) {
			continue
		}
		if last != nil {
			_ = out.WriteByte(',')
		}
		if _, err := out.Write(e.raw); err != nil {
			return false
		}
		last = e
		n++
	}
	_, _ = out.WriteString("]\n")
	return out.Flush() == nil
}

// first returns the stream with the first element, or nil.
func first(parts []*stream, l list) *stream {
	var found *stream
	for _, s := range parts {
		if s.next != nil && (found == nil || l.compare(s.next, found.next) < 0) {
			found = s
		}
	}
	return found
}

// openAll starts the request at all nodes. It returns the lists that have begun, the nodes without one, and the first
// answer that is an error.
func (g *Gateway) openAll(r *http.Request, accept string) (parts []*stream, missing []*nodes.Node,
	refusal *http.Response) {
	all := g.cfg.Nodes.All()
	opened, refused := make([]*stream, len(all)), make([]*http.Response, len(all))
	var asks sync.WaitGroup
	for i, n := range all {
		if !n.Up() {
			continue
		}
		asks.Go(func() { opened[i], refused[i] = g.open(r, n, accept) })
	}
	asks.Wait()
	for i, n := range all {
		if opened[i] != nil {
			parts = append(parts, opened[i])
			continue
		}
		missing = append(missing, n)
		if refusal == nil {
			refusal = refused[i]
		}
	}
	return parts, missing, refusal
}

// open starts the request at one node, and reads the first element. With accept, the body is not read.
func (g *Gateway) open(r *http.Request, n *nodes.Node, accept string) (*stream, *http.Response) {
	ctx, end := context.WithCancel(r.Context())
	timer := time.AfterFunc(g.cfg.ListTime, end)
	fail := func(err error) (*stream, *http.Response) {
		end()
		g.cfg.Log.Warn("a node is missing in a list", "node", n.Name, "path", r.URL.Path, "error", err)
		return nil, nil
	}
	out, err := request(ctx, r, n, http.MethodGet, r.URL.RequestURI(), nil)
	if err != nil {
		return fail(err)
	}
	resp, err := n.HTTP.RoundTrip(out)
	if err != nil {
		return fail(err)
	}
	s := &stream{node: n, resp: resp, end: end}
	if resp.StatusCode != http.StatusOK {
		defer s.close()
		if !timer.Stop() {
			return nil, nil
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		return nil, (&refused{resp.StatusCode, resp.Header, body, n}).answer().Response
	}
	if accept == "" {
		if err := s.begin(); err != nil {
			_ = resp.Body.Close()
			return fail(err)
		}
	}
	if !timer.Stop() {
		_ = resp.Body.Close()
		return fail(context.DeadlineExceeded)
	}
	return s, nil
}

func (s *stream) close() {
	_ = s.resp.Body.Close()
	s.end()
}

// begin reads the first element.
func (s *stream) begin() error {
	s.bound = &bounded{from: s.resp.Body, left: maxElement}
	s.dec = json.NewDecoder(s.bound)
	open, err := s.dec.Token()
	if err != nil {
		return err
	}
	if open != json.Delim('[') {
		return errors.New("the answer is no list")
	}
	return s.advance()
}

// advance reads the next element.
func (s *stream) advance() error {
	s.next = nil
	s.bound.left = maxElement
	if !s.dec.More() {
		_, err := s.dec.Token() // the end of the list, or the reason for its lack
		return err
	}
	e := &element{}
	if err := s.dec.Decode(&e.raw); err != nil {
		return err
	}
	_ = json.Unmarshal(e.raw, e) // lists of E2B's API have other fields, and no order
	s.next = e
	return nil
}

// bounded fails after too many bytes.
type bounded struct {
	from io.Reader
	left int64
}

var errElement = errors.New("an element of the list is too long")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errElement
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
