package gateway

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/kube/nodes"
)

// spreading is a fork over several nodes.
type spreading struct {
	tag, id string
	body    []byte
	sizes   []int // children by part
}

const (
	ndjson = "application/x-ndjson"
	// maxLine limits the entry of one child, in bytes.
	maxLine = 1 << 20
	// maxPart limits the answer of one node to its part, in bytes.
	maxPart = 32 << 20
)

// child is an entry of a fork's answer. Fields that the gateway does not know stay.
type child map[string]json.RawMessage

// total is the sum of a fork's parts.
type total struct {
	each func(child) // sends a new sandbox; nil if the answer is one list

	mu      sync.Mutex // guards the fields below, and calls of each
	entries []child    // held back: failed children, and all of a list
	made    []made
	sum     api.ForkTotals
	refused *answer // the answer of the first part that was refused
	failed  failure // of the first failed child
}

// made is a sandbox that the fork has made.
type made struct {
	node *nodes.Node
	id   string
}

// spread forks on several nodes at the same time. If the client leaves before the end, the sandboxes of all parts are
// ended.
func (g *Gateway) spread(w *writer, r *http.Request, s spreading) {
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	r = r.WithContext(ctx)
	t := &total{}
	lines := strings.Contains(r.Header.Get("Accept"), ndjson)
	if lines {
		t.each = func(c child) {
			w.Header().Set("Content-Type", ndjson)
			if w.status == 0 {
				w.WriteHeader(http.StatusCreated)
			}
			if !sendLine(w, map[string]child{"child": c}) {
				stop()
			}
		}
	}
	var asks sync.WaitGroup
	at := 0
	for i, n := range s.sizes {
		offset := at
		at += n
		asks.Go(func() { g.part(r, s, t, i, offset) })
	}
	asks.Wait()
	rest(g, r, s, t)
	if ctx.Err() != nil {
		g.undo(r, t.made)
		panic(http.ErrAbortHandler)
	}
	switch {
	case len(t.made) == 0 && t.refused != nil:
		relay(w, t.refused.Response)
	case len(t.made) == 0:
		g.refuse(w, r, t.failed)
	case lines:
		whole := true
		for _, c := range t.entries {
			whole = whole && sendLine(w, map[string]child{"child": c})
		}
		if !whole || !sendLine(w, map[string]api.ForkTotals{"fork": t.sum}) {
			g.undo(r, t.made)
			panic(http.ErrAbortHandler)
		}
	default:
		t.write(w)
	}
}

// sendLine reports whether the line was sent.
func sendLine(w *writer, v any) bool {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	_ = w.FlushError() // a recorder of a test has no flush
	return err == nil
}

// write sends the whole answer.
func (t *total) write(w *writer) {
	slices.SortFunc(t.entries, func(a, b child) int { return a.index() - b.index() })
	h := w.Header()
	h.Set(api.HeaderPoolReady, strconv.Itoa(t.sum.PoolReady))
	h.Set(api.HeaderArmedWall, strconv.FormatInt(int64(t.sum.ArmedWallMS*1000), 10))
	h.Set(api.HeaderReadyWall, strconv.FormatInt(int64(t.sum.ReadyWallMS*1000), 10))
	writeJSON(w, http.StatusCreated, t.entries)
}

// part forks the children of one part.
func (g *Gateway) part(r *http.Request, s spreading, t *total, i, offset int) {
	n := s.sizes[i]
	body, err := sized(s.body, n)
	var a answer
	if err == nil {
		id := s.id + "-" + strconv.Itoa(i)
		id = id[max(0, len(id)-255):]
		a, err = g.place(r.Context(), question{from: r, body: body, id: id, overflows: true, want: wantOf(g, s.tag, id, n)})
	}
	indexes := make([]int, n)
	for k := range indexes {
		indexes[k] = offset + k + 1
	}
	take(g, a, err, s, t, indexes)
}

// take adds the answer to a part, whose children have these indexes in the whole fork.
func take(g *Gateway, a answer, err error, s spreading, t *total, indexes []int) {
	n := len(indexes)
	switch {
	case err != nil:
		t.fail(failureOf(err), s.tag, indexes...)
		return
	case a.StatusCode >= 300:
		t.refuse(a, s.tag, indexes)
		return
	}
	defer a.Body.Close()
	read := readList
	if strings.HasPrefix(a.Header.Get("Content-Type"), ndjson) {
		read = readLines
	}
	got := map[int]bool{}
	err = read(a, func(c child) error {
		index := c.index()
		if index < 1 || index > n || got[index] {
			return fmt.Errorf("node %s sent child %d of %d", a.node.Name, index, n)
		}
		got[index] = true
		t.add(a.node, c, indexes[index-1])
		return nil
	}, t.totals)
	if err == nil && len(got) == n {
		return
	}
	g.cfg.Log.Warn("a node broke off its part of a fork", "node", a.node.Name, "error", err, "children", len(got), "of", n)
	silent := failf(api.CodeTimeout, api.ReasonNodeSilent, "node %s broke off its answer", a.node.Name)
	for index := 1; index <= n; index++ {
		if !got[index] {
			t.fail(silent, s.tag, indexes[index-1])
		}
	}
}

// add adds the entry of a child.
func (t *total) add(n *nodes.Node, c child, index int) {
	c["index"], _ = json.Marshal(index)
	t.mu.Lock()
	defer t.mu.Unlock()
	id := c.text("id")
	if id != "" {
		t.made = append(t.made, made{n, id})
		if t.each != nil {
			t.each(c)
			return
		}
	} else if t.failed.code == "" {
		t.failed = failf(cmp.Or(api.Code(c.text("code")), api.CodeInternal), "", "%s", c.text("error"))
	}
	t.entries = append(t.entries, c)
}

// totals adds the figures of one part.
func (t *total) totals(f api.ForkTotals) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.PoolReady += f.PoolReady
	t.sum.ArmedWallMS, t.sum.ReadyWallMS = max(t.sum.ArmedWallMS, f.ArmedWallMS), max(t.sum.ReadyWallMS, f.ReadyWallMS)
}

// refuse enters the children of a refused part as failed.
func (t *total) refuse(a answer, tag string, indexes []int) {
	body, _ := io.ReadAll(io.LimitReader(a.Body, maxRefusal))
	_ = a.Body.Close()
	var e api.Error
	_ = json.Unmarshal(body, &e)
	t.mu.Lock()
	if t.refused == nil {
		r := &refused{a.StatusCode, a.Header, body, a.node}
		kept := r.answer()
		t.refused = &kept
	}
	t.mu.Unlock()
	text := cmp.Or(e.Message, fmt.Sprintf("node %s answered with status %d", a.node.Name, a.StatusCode))
	t.fail(failure{cmp.Or(e.Code, api.CodeInternal), e.Reason, text}, tag, indexes...)
}

// fail enters failed children.
func (t *total) fail(f failure, tag string, indexes ...int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed.code == "" {
		t.failed = f
	}
	for _, index := range indexes {
		b, _ := json.Marshal(api.SandboxInfo{SnapshotTag: tag, Status: api.SandboxFailed, Index: index,
			Error: f.text, Code: f.code})
		var c child
		_ = json.Unmarshal(b, &c)
		t.entries = append(t.entries, c)
	}
}

// undo ends sandboxes of a fork whose client has left.
func (g *Gateway) undo(r *http.Request, all []made) {
	if len(all) == 0 {
		return
	}
	g.cleaning.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second)
		defer cancel()
		var ends sync.WaitGroup
		turns := make(chan struct{}, 8)
		for _, m := range all {
			turns <- struct{}{}
			ends.Go(func() {
				defer func() { <-turns }()
				killOne(g, ctx, r, m)
			})
		}
		ends.Wait()
	})
}

func killOne(g *Gateway, ctx context.Context, r *http.Request, m made) {
	out, err := request(ctx, r, m.node, http.MethodDelete, "/v1/sandboxes/"+escape(m.id), nil)
	if err == nil {
		out.Header.Del("Accept")
		out.Header.Del("Content-Type")
		out.Header.Del("Idempotency-Key")
		var resp *http.Response
		if resp, err = m.node.HTTP.RoundTrip(out); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound {
				err = fmt.Errorf("status %d", resp.StatusCode)
			}
		}
	}
	if err != nil {
		g.cfg.Log.Error("end a sandbox of a broken fork", "sandbox", m.id, "node", m.node.Name, "error", err)
	}
}

func (c child) index() int {
	var n int
	_ = json.Unmarshal(c["index"], &n)
	return n
}

func (c child) text(field string) string {
	var s string
	_ = json.Unmarshal(c[field], &s)
	return s
}

// readList reads a part's answer as one list.
func readList(a answer, each func(child) error, sum func(api.ForkTotals)) error {
	d := json.NewDecoder(io.LimitReader(a.Body, maxPart))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return errors.New("want a list of children")
	}
	for d.More() {
		var c child
		if err := d.Decode(&c); err != nil {
			return err
		}
		if err := each(c); err != nil {
			return err
		}
	}
	_, err := d.Token()
	h := func(name string) float64 {
		n, _ := strconv.ParseFloat(a.Header.Get(name), 64)
		return n
	}
	sum(api.ForkTotals{PoolReady: int(h(api.HeaderPoolReady)), ArmedWallMS: h(api.HeaderArmedWall) / 1000,
		ReadyWallMS: h(api.HeaderReadyWall) / 1000})
	return err
}

// readLines reads a part's answer as lines.
func readLines(a answer, each func(child) error, sum func(api.ForkTotals)) error {
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var line struct {
			Child child           `json:"child"`
			Fork  *api.ForkTotals `json:"fork"`
			Error *api.Error      `json:"error"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return err
		}
		switch {
		case line.Child != nil:
			if err := each(line.Child); err != nil {
				return err
			}
		case line.Fork != nil:
			sum(*line.Fork)
			return nil
		case line.Error != nil:
			return nil // all children of the part failed, and each has its entry
		}
	}
	return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}
