package e2bapi

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/page"
	"github.com/forkd/forkd/internal/api/e2bapi/templates"
	"github.com/forkd/forkd/internal/api/e2bapi/volumefiles"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

const (
	headerNext  = "X-Next-Token"
	headerTotal = "X-Total-Running"
)

// listing serves lists of sandboxes.
type listing struct{ h *Handler }

// filter selects and orders the sandboxes of a list.
type filter struct {
	metadata map[string]string
	states   []state
	template string // a tag; empty: any
	built    string // ID of the built template of that name; empty: none
	never    bool   // the template cannot exist
	after    time.Time
	oldest   bool // oldest first
}

// filterOf reads a query.
func filterOf(q url.Values) (filter, error) {
	f := filter{states: []state{stateRunning, statePaused}, oldest: q.Get("order") == "asc"}
	var err error
	if f.metadata, err = page.Metadata(q.Get("metadata")); err != nil {
		return filter{}, invalidf("metadata: %v", err)
	}
	if given := strings.Join(q["state"], ","); given != "" {
		f.states = nil
		for s := range strings.SplitSeq(given, ",") {
			if s != string(stateRunning) && s != string(statePaused) {
				return filter{}, invalidf("state %q: want running or paused", sandbox.Clip(s))
			}
			f.states = append(f.states, state(s))
		}
	}
	if o := q.Get("order"); o != "" && o != "asc" && o != "desc" {
		return filter{}, invalidf("order %q: want asc or desc", sandbox.Clip(o))
	}
	if at := q.Get("startedAfter"); at != "" {
		if f.after, err = time.Parse(time.RFC3339Nano, at); err != nil {
			return filter{}, invalidf("startedAfter %q: want a time as RFC 3339 has it", sandbox.Clip(at))
		}
	}
	if t := q.Get("template"); t != "" {
		f.template, err = templates.Tag(t)
		f.never = err != nil
	}
	return f, nil
}

// matches reports whether a sandbox matches. tags are all forms of its tag the caller may use.
func (f filter) matches(l listedSandbox, tags ...string) bool {
	if f.built != "" && l.Template == f.built {
		tags = append(tags, f.template)
	}
	if f.never || f.template != "" && !slices.Contains(tags, f.template) {
		return false
	}
	if !slices.Contains(f.states, l.State) || l.Started.Before(f.after) {
		return false
	}
	for k, v := range f.metadata {
		if have, ok := l.Metadata[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// visible returns the sandboxes a caller may see.
func (ls listing) visible(c call) []known {
	var out []known
	for _, info := range c.engine.List() {
		rec, exists := ls.h.opt.Records.Get(info.ID)
		if stateOf(info) == stateGone || volumefiles.Ours(info) {
			continue
		}
		out = append(out, knownOf(ls.h, info, rec, exists))
	}
	return out
}

// matching returns the sandboxes that match a filter, in order.
func (ls listing) matching(c call, f filter) []listedSandbox {
	out := []listedSandbox{}
	for _, k := range ls.visible(c) {
		if l := listed(k); f.matches(l, k.info.SnapshotTag, c.short(k.info.SnapshotTag)) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b listedSandbox) int {
		order := cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
		if f.oldest {
			return order
		}
		return -order
	})
	return out
}

// list is GET /v2/sandboxes.
func (ls listing) list(c call) (answer, error) {
	q := c.URL.Query()
	f, err := filterOf(q)
	if err != nil {
		return answer{}, err
	}
	if t, ok := builds(ls).template(c.who.Tenant, q.Get("template")); ok {
		f.built, f.template, f.never = t.ID, cmp.Or(f.template, t.ID), false
	}
	limit, err := page.Limit(q.Get("limit"))
	if err != nil {
		return answer{}, invalidf("limit: %v", err)
	}
	all := ls.matching(c, f)
	if slices.Contains(f.states, stateRunning) {
		running := 0
		for _, l := range all {
			if l.State == stateRunning {
				running++
			}
		}
		c.w.Header().Set(headerTotal, strconv.Itoa(running))
	}
	some, next, err := page.Of(all, q.Get("nextToken"), limit, func(l listedSandbox) page.Key {
		return page.Key{At: l.Started, ID: l.ID}
	}, f.oldest)
	if err != nil {
		return answer{}, invalidf("nextToken: %v", err)
	}
	if next != "" {
		c.w.Header().Set(headerNext, next)
	}
	return answer{http.StatusOK, slices.Clone(some)}, nil // a copy, to free the other entries
}

// listRunning is GET /sandboxes, for older clients. It returns all running sandboxes in one answer.
func (ls listing) listRunning(c call) (answer, error) {
	f, err := filterOf(url.Values{"metadata": c.URL.Query()["metadata"], "state": {string(stateRunning)}})
	if err != nil {
		return answer{}, err
	}
	return answer{http.StatusOK, ls.matching(c, f)}, nil
}
