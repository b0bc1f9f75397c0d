package conformance

import (
	"os"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// row is one way to make other sandboxes from one instant of a source.
type row struct {
	name string
	// If load is true, the writer runs at the instant. Otherwise all sandboxes stop at a known
	// step, and the children must be exactly at this step.
	load bool
	// If ofChild is true, the source is a child of the row before. Otherwise it is the suite's
	// source.
	ofChild bool
	// instant takes the instant. Children are made after the source has continued.
	instant  func(s *suite, source string) (tag string, clones []string)
	children int
}

var rows = []row{
	{name: "branch full", children: 1, instant: branchWith(api.BranchRequest{Mode: api.BranchFull})},
	{name: "branch diff", children: 1, instant: branchWith(api.BranchRequest{Mode: api.BranchDiff})},
	{name: "branch live", children: 2, instant: branchWith(api.BranchRequest{Mode: api.BranchLive})},
	{name: "branch full, load", load: true, children: 1, instant: branchWith(api.BranchRequest{Mode: api.BranchFull})},
	{name: "branch diff, load", load: true, children: 1, instant: branchWith(api.BranchRequest{Mode: api.BranchDiff})},
	{name: "branch live, load", load: true, instant: branchWith(api.BranchRequest{Mode: api.BranchLive, N: 2})},
	{name: "branch live, load, no wait", load: true, children: 1, instant: branchWith(api.BranchRequest{Mode: api.BranchLive, Wait: new(bool)})},
	{name: "branch of a branch", children: 1, ofChild: true, instant: branchWith(api.BranchRequest{Mode: api.BranchDiff})},
	{name: "branch of that, load", load: true, children: 1, ofChild: true, instant: branchWith(api.BranchRequest{Mode: api.BranchLive})},
}

// pairs are ways of which `make test` takes one, chosen by the seed, because each takes half a
// minute. A soak takes both, and so does a run with a given runtime.
var pairs = [][2]string{
	{"branch full", "branch full, load"},
	{"branch diff", "branch diff, load"},
	{"branch live", "branch live, load"},
	{"branch live, load, no wait", "branch of that, load"},
	{"rollback", "rollback, load"},
}

// draw returns the names of the ways to leave out.
func draw(t *testing.T) (left map[string]bool) {
	left = map[string]bool{}
	if harness.Soaking() || os.Getenv(urlVar) != "" {
		return left
	}
	random := kvmtest.Random(kvmtest.Seed(t), 0)
	for _, p := range pairs {
		left[p[random.IntN(len(p))]] = true
	}
	return left
}

func branchWith(req api.BranchRequest) func(*suite, string) (string, []string) {
	return func(s *suite, source string) (string, []string) {
		s.t.Helper()
		req.Tag = s.newTag()
		return req.Tag, s.branch(source, req)
	}
}

// TestConformance checks the result of every operation for every canary.
func TestConformance(t *testing.T) {
	left := draw(t)
	s := newSuite(t)
	t.Cleanup(s.clean)
	began := time.Now()
	s.parent()
	s.spend("parent", began)
	table := table{columns: columns}
	t.Cleanup(func() { t.Logf("\n%s%v", table.text(), s.spent) })
	source := s.forks(t, &table)
	from := source
	for _, r := range rows {
		if left[r.name] {
			continue
		}
		if !r.ofChild && from != source { // its writer would be a load on the others
			s.kill(from)
			from = source
		}
		t.Run(r.name, func(t *testing.T) {
			s.t = t
			from = s.row(r, from, table.row(r.name))
		})
		s.t = t
	}
	for _, r := range rollbacks {
		if left[r.name] {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			s.rollback(t, source, r.mode, r.load, table.row(r.name))
		})
		s.t = t
	}
}

// forks runs the first row: children of a snapshot, all stopped at its step. One of them is the
// source of the other rows.
func (s *suite) forks(t *testing.T, table *table) (source string) {
	const name = "fork"
	t.Run(name, func(t *testing.T) {
		s.t = t
		cells := table.row(name)
		at := instant{steps: primed, exact: true, asked: time.Now()}
		ids := s.fork(s.tag, 2)
		at.made = time.Now()
		for _, id := range ids {
			s.eras[id] = []int{0}
			s.looksLike(id, at, cells)
		}
		s.apart(ids, cells)
		cells.settle(t)
		s.kill(ids[1:]...)
		source = ids[0]
	})
	s.t = t
	if source == "" {
		t.Fatal("without a fork there is no source for what follows")
	}
	return source
}

// primed is the step at which canary.py waits for its first command.
const primed = 5000

// row runs one operation, and returns one of its children.
func (s *suite) row(r row, source string, cells *cells) string {
	was := s.eras[source]
	at := s.before(source, r.load)
	at.asked = time.Now()
	tag, ids := r.instant(s, source)
	at.made = time.Now()
	at.after = s.canary(source, "look")
	s.newEra(source) // children must not see it; the capture may still be in progress
	s.canary(source, "hold")
	if r.children > 0 {
		at.asked = time.Now()
		ids = append(ids, s.fork(tag, r.children)...)
		at.made = time.Now()
	}
	for _, id := range ids {
		s.eras[id] = was
		s.looksLike(id, at, cells)
		s.canary(id, "hold")
	}
	s.apart(ids, cells)
	now := s.check(source)
	s.complain(cells, "source", source, now)
	if now.Steps < at.after.Steps || at.after.Steps < at.steps {
		cells.wrong("source", "%s was at step %d, then %d, then %d", source, at.steps, at.after.Steps, now.Steps)
	}
	cells.settle(s.t)
	s.kill(ids[1:]...)
	return ids[0]
}

// before sets the canaries that are new for each instant, and returns the expected state of the
// next instant.
func (s *suite) before(source string, load bool) instant {
	s.t.Helper()
	s.canary(source, "arm", "nonce", s.newTag())
	if load {
		s.canary(source, "go")
	} else {
		s.canary(source, "hold")
	}
	look := s.canary(source, "look")
	return instant{steps: look.Steps, exact: !load, era: last(s.eras[source]), before: look}
}

// apart makes each sandbox overwrite all shared places with its own values, and then checks each
// for values of another.
func (s *suite) apart(ids []string, cells *cells) {
	s.t.Helper()
	for _, id := range ids {
		s.newEra(id)
	}
	for _, id := range ids {
		s.complain(cells, "apart", id, s.check(id))
	}
}

func (s *suite) complain(cells *cells, column, id string, r report) {
	for who, said := range r.Complaints {
		cells.wrong(column, "%s: %s: %q", id, who, said)
	}
}

func last(list []int) int { return list[len(list)-1] }
