package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/forkd/forkd/internal/kube/nodes"
	"github.com/forkd/forkd/internal/kube/placement"
)

// fork serves POST /v1/sandboxes. A large fork is spread over nodes with the snapshot. A volume or a private network
// is on one node, so the client has to name the node of a fork with one.
func (g *Gateway) fork(w *writer, r *http.Request) {
	body, free, ok := g.bodyOf(w, r)
	if !ok {
		return
	}
	defer free()
	var req struct {
		Tag string `json:"snapshot_tag"`
		N   *int   `json:"n"`

		Volumes []json.RawMessage `json:"volumes"`
		Join    json.RawMessage   `json:"net_join"`
	}
	if !parse(body, &req) || req.Tag == "" {
		restore(r, body)
		g.toAny(w, r) // it says what is wrong
		return
	}
	if len(req.Volumes)+len(req.Join) > 0 {
		restore(r, body)
		g.toNode(w, r)
		return
	}
	n := 1
	if req.N != nil {
		n = *req.N
	}
	id := r.Header.Get("Idempotency-Key")
	if id == "" {
		id = newID()
	}
	parts := partsOf(g, req.Tag, n)
	if len(parts) == 0 && n > 1 && n <= 1000 && len(peersFor(g, req.Tag)) == 1 && len(g.up()) > 1 {
		parts = []int{n} // what the node cannot take goes to others
	}
	if len(parts) > 0 {
		g.spread(w, r, spreading{tag: req.Tag, id: id, body: body, sizes: parts})
		return
	}
	g.one(w, r, question{from: r, body: body, id: id, overflows: true, want: wantOf(g, req.Tag, id, n)})
}

// create serves E2B's create.
func (g *Gateway) create(w *writer, r *http.Request, t target) {
	body, free, ok := g.bodyOf(w, r)
	if !ok {
		return
	}
	defer free()
	var req struct {
		Template string `json:"templateID"`

		Volumes []json.RawMessage `json:"volumeMounts"`
	}
	if !parse(body, &req) || req.Template == "" {
		restore(r, body)
		g.toAny(w, r)
		return
	}
	if len(req.Volumes) > 0 {
		restore(r, body)
		g.toNode(w, r)
		return
	}
	tag := g.cfg.TemplateTag(req.Template)
	id := ""
	if t.repeats {
		if id = r.Header.Get("Idempotency-Key"); id == "" {
			id = newID()
		}
	}
	g.one(w, r, question{from: r, body: body, id: id, overflows: true, want: wantOf(g, tag, id, 1)})
}

// bareName returns the name of a template without a tag.
func bareName(template string) string {
	name, _, _ := strings.Cut(template, ":")
	return name
}

// makeWorkspace serves POST /v1/workspaces. A name that exists on a node is that node's to refuse.
func (g *Gateway) makeWorkspace(w *writer, r *http.Request) {
	body, free, ok := g.bodyOf(w, r)
	if !ok {
		return
	}
	defer free()
	var req struct {
		Name string `json:"name"`
		Tag  string `json:"snapshot_tag"`
	}
	restore(r, body)
	if !parse(body, &req) || req.Name == "" {
		g.toAny(w, r)
		return
	}
	up, _ := g.candidates("")
	has, _, err := lookUp(g, r, up, "/v1/workspaces/"+escape(req.Name), "")
	switch {
	case err != nil:
		g.refuse(w, r, failureOf(err))
		return
	case len(has) > 0:
		g.forward(w, r, has[0])
		return
	}
	g.one(w, r, question{from: r, body: body, overflows: true, want: wantOf(g, req.Tag, "", 1)})
}

// makeSnapshot serves requests for a new snapshot or image. A tag that exists is its node's to refuse.
func (g *Gateway) makeSnapshot(w *writer, r *http.Request) {
	if r.Method == http.MethodPut {
		receiveUpload(g, w, r)
		return
	}
	body, free, ok := g.bodyOf(w, r)
	if !ok {
		return
	}
	defer free()
	var req struct {
		Tag  string `json:"tag"`
		From string `json:"from"`
	}
	restore(r, body)
	if !parse(body, &req) || req.Tag == "" {
		g.toAny(w, r)
		return
	}
	n, err := takenBy(g, r, req.Tag)
	switch {
	case err != nil:
		g.refuse(w, r, failureOf(err))
		return
	case n != nil:
		g.forward(w, r, n)
		return
	}
	a, err := g.place(r.Context(), question{from: r, body: body, want: wantOf(g, req.From, "", 1)})
	if err != nil {
		g.refuse(w, r, failureOf(err))
		return
	}
	if a.StatusCode < 300 {
		g.hints.set(req.Tag, a.node.Name, hintTime)
		defer a.node.Look()
	}
	relay(w, a.Response)
}

// takenBy returns a node with a snapshot of that name, or nil.
func takenBy(g *Gateway, r *http.Request, tag string) (*nodes.Node, error) {
	may, _ := g.candidates(tag)
	has, _, err := lookUp(g, r, may, infoOf(tag), "")
	if len(has) == 0 {
		return nil, err
	}
	return has[0], nil
}

// receiveUpload serves uploads of images and snapshots, whose bodies cannot be sent twice.
func receiveUpload(g *Gateway, w *writer, r *http.Request) {
	parts := segments(r.URL)
	if parts[1] == "snapshots" {
		n, err := takenBy(g, r, parts[2])
		switch {
		case err != nil:
			g.refuse(w, r, failureOf(err))
			return
		case n != nil:
			g.forward(w, r, n)
			return
		}
	}
	c := g.cfg.Board.Claim(wantOf(g, "", "", 1))
	name, err := c.Next()
	if n := g.cfg.Nodes.ByName(name); err == nil && n != nil {
		_, _ = c.Result(nil)
		if parts[1] == "snapshots" {
			g.hints.set(parts[2], name, hintTime)
		}
		defer n.Look()
		g.forward(w, r, n)
		return
	}
	g.refuse(w, r, failureOf(noNode(g, r.Context(), r, err)))
}

// one asks for sandboxes on one node.
func (g *Gateway) one(w *writer, r *http.Request, q question) {
	a, err := g.place(r.Context(), q)
	if err != nil {
		g.refuse(w, r, failureOf(err))
		return
	}
	relay(w, a.Response)
}

// childMemory is the memory of a new sandbox in MiB, as far as no node tells another figure.
const childMemory = 8

// wantOf describes new sandboxes of a snapshot to the board.
func wantOf(g *Gateway, tag, id string, n int) placement.Request {
	memory := int64(childMemory)
	for _, node := range g.cfg.Nodes.All() {
		facts, _ := node.Facts()
		memory = max(memory, min(facts.ChildBytes>>20, 64<<10))
	}
	return placement.Request{ID: id, Snapshot: tag, Holders: tag != "", Count: min(max(n, 1), 1000), Unique: memory}
}

// perPart is the number of children from which a fork is spread over more nodes.
const perPart = 8

// partsOf returns the numbers of children by part of a fork.
func partsOf(g *Gateway, tag string, n int) []int {
	holders := 0
	for _, node := range g.up() {
		if facts, _ := node.Facts(); !facts.Draining && listed(node, tag) {
			holders++
		}
	}
	most := min(holders, (n+perPart-1)/perPart)
	if most < 2 || n > 1000 {
		return nil
	}
	sizes := make([]int, most)
	for i := range sizes {
		sizes[i] = n / most
		if i < n%most {
			sizes[i]++
		}
	}
	return sizes
}

// sized returns the body of a fork with another number of children.
func sized(body []byte, n int) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	fields["n"], _ = json.Marshal(n)
	return json.Marshal(fields)
}
