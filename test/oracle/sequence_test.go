package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// Limits of a sequence.
const (
	wantedSteps  = 40
	fewestSteps  = 15 // even on a slow machine
	mostGuests   = 4
	mostTags     = 8
	mostFilled   = 6 << 10 // KiB of data in one guest
	sequenceTime = 30 * time.Second
)

// sequence is one random walk, with its expected state.
type sequence struct {
	t      *testing.T
	d      *harness.Daemon
	random *rand.Rand
	steps  int
	guests []*guest
	tags   map[string]taken
	names  []string // of tags, in order: the order of a map would not follow the seed
}

// taken is the expected state of a snapshot.
type taken struct {
	has   *guest // the state of its source
	of    string // the sandbox that was branched, or empty
	below string // the tag that it was built on, or empty
}

// After each of tens of random steps, all affected guests answer, and the oracle has compared every
// snapshot. Branches of one source differ in mode and limit, because these affect the capture.
func TestRandomSequences(t *testing.T) {
	d := daemon(t)
	seed := kvmtest.Seed(t)
	s := &sequence{t: t, d: d, random: kvmtest.Random(seed, 0), tags: map[string]taken{parentTag: {has: &guest{}}}, names: []string{parentTag}}
	t.Cleanup(func() { clean(t, d) })
	before := d.Account()
	span, soaking := harness.Span(t, sequenceTime), harness.Soaking()
	for end := time.Now().Add(span); !t.Failed(); s.steps++ {
		over := time.Now().After(end)
		if over && s.steps >= fewestSteps || !soaking && s.steps >= wantedSteps {
			break
		}
		s.step()
		sound(t, d, nil)
	}
	after := d.Account()
	t.Logf("%d steps; the oracle compared %d snapshots of %d", s.steps, after.Checked-before.Checked, after.Made-before.Made)
	if n := after.Checked - before.Checked; n < s.steps/4 && !t.Failed() {
		t.Errorf("the oracle has compared %d snapshots in %d steps", n, s.steps)
	}
}

// step makes one random step.
func (s *sequence) step() {
	s.t.Helper()
	if len(s.guests) == 0 {
		s.fork()
		return
	}
	for len(s.guests) > mostGuests {
		s.kill()
	}
	for len(s.names) > mostTags && s.remove() {
	}
	switch n := s.random.IntN(100); {
	case n < 55:
		s.branch()
	case n < 65:
		s.rollback()
	case n < 75:
		s.compact()
	case n < 87:
		s.guestFork()
	case n < 94:
		s.fork()
	default:
		s.kill()
	}
}

func (s *sequence) say(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("%3d  %s", s.steps, fmt.Sprintf(format, args...))
}

func (s *sequence) guest() *guest { return s.guests[s.random.IntN(len(s.guests))] }
func (s *sequence) tag() string   { return s.names[s.random.IntN(len(s.names))] }

// adopt records children, and checks their answers.
func (s *sequence) adopt(tag string, children []api.SandboxInfo) {
	s.t.Helper()
	for _, sb := range children {
		if sb.Error != "" {
			s.t.Fatalf("child %d of %s: %s", sb.Index, tag, sb.Error)
		}
		g := s.tags[tag].has.copyAs(sb.ID, tag)
		s.guests = append(s.guests, g)
		g.answers(s.t, s.d)
	}
}

func (s *sequence) fork() {
	tag := s.tag()
	s.say("fork %s", tag)
	s.forkOf(tag)
}

// forkOf makes a child whose guest may fork it.
func (s *sequence) forkOf(tag string) {
	s.t.Helper()
	s.adopt(tag, s.d.Fork(s.t, tag, 1))
	s.guests[len(s.guests)-1].mayFork = true
}

// disturb changes a guest's state and load before it is branched.
func (s *sequence) disturb(g *guest) string {
	g.leave(s.t, s.d, s.steps+1)
	if s.random.IntN(3) == 0 {
		g.fill(s.t, s.d, 1+s.random.IntN(mostFilled))
	}
	if s.random.IntN(3) == 0 {
		return "as before"
	}
	l := loads[s.random.IntN(len(loads))]
	l.put(s.t, s.d, g.id)
	return l.name
}

// limits are pause limits, in ms. Branches here can hardly meet the shortest.
var limits = []float64{0, 1, 300, 2000}

func (s *sequence) branch() {
	g := s.guest()
	writes := s.disturb(g)
	req := api.BranchRequest{
		Tag:        fmt.Sprintf("s%d", s.steps),
		Mode:       []api.BranchMode{api.BranchLive, api.BranchLive, api.BranchDiff, api.BranchFull}[s.random.IntN(4)],
		MaxPauseMS: limits[s.random.IntN(len(limits))],
		N:          s.random.IntN(3),
	}
	if s.random.IntN(4) == 0 {
		req.Wait, req.N = new(bool), 0
	}
	res, err := s.d.Client.Branch(s.t.Context(), g.id, req)
	s.say("branch %s: %s, %.0f ms, writes %s: %d rounds, %d bytes, %v", g.id, req.Mode, req.MaxPauseMS, writes, res.Rounds, res.BytesWritten, err)
	if client.CodeOf(err) == api.CodeConflict && req.MaxPauseMS > 0 && strings.Contains(err.Error(), "pause") {
		req.MaxPauseMS = limits[2+s.random.IntN(2)] // follows the hint in the error
		if res, err = s.d.Client.Branch(s.t.Context(), g.id, req); client.CodeOf(err) == api.CodeConflict && strings.Contains(err.Error(), "pause") {
			s.say("  and not within %.0f ms either", req.MaxPauseMS)
			g.answers(s.t, s.d)
			return
		}
		s.say("  then %.0f ms: %d rounds, %d bytes, %v", req.MaxPauseMS, res.Rounds, res.BytesWritten, err)
	}
	if err != nil {
		s.t.Fatalf("branch %s: %v", g.id, err)
	}
	made := taken{has: g.copyAs("", ""), of: g.id, below: g.base}
	if req.Mode == api.BranchFull {
		made.below = ""
	}
	s.keep(req.Tag, made)
	s.adopt(req.Tag, res.Children)
	if req.Wait != nil {
		s.forkOf(req.Tag)
	}
	g.answers(s.t, s.d)
}

func (s *sequence) keep(tag string, made taken) {
	s.tags[tag] = made
	s.names = append(s.names, tag)
}

// line returns the tags that a guest may be rolled back to: its ancestry, and its own branches.
func (s *sequence) line(g *guest) (out []string) {
	for _, tag := range s.names {
		if s.tags[tag].of == g.id || s.under(g.origin, tag) || s.under(g.base, tag) {
			out = append(out, tag)
		}
	}
	return out
}

// under reports whether tag is lower, or is built on it.
func (s *sequence) under(tag, lower string) bool {
	for tag != "" && tag != lower {
		tag = s.tags[tag].below
	}
	return tag == lower
}

func (s *sequence) rollback() {
	g := s.guest()
	line := s.line(g)
	if len(line) == 0 {
		return
	}
	tag := line[s.random.IntN(len(line))]
	s.say("roll %s back to %s", g.id, tag)
	if _, err := s.d.Client.Rollback(s.t.Context(), g.id, tag); err != nil {
		s.t.Fatalf("roll %s back to %s: %v", g.id, tag, err)
	}
	was := s.tags[tag].has
	g.mark, g.sum, g.base = was.mark, was.sum, tag
	g.answers(s.t, s.d)
}

func (s *sequence) compact() {
	tag, to := s.tag(), fmt.Sprintf("c%d", s.steps)
	s.say("compact %s to %s", tag, to)
	if _, err := s.d.Client.CompactSnapshot(s.t.Context(), tag, to, nil); err != nil {
		s.t.Fatalf("compact %s: %v", tag, err)
	}
	s.keep(to, taken{has: s.tags[tag].has})
	s.forkOf(to)
}

func (s *sequence) guestFork() {
	g := s.guest()
	if !g.mayFork { // a child of a branch request
		s.branch()
		return
	}
	g.leave(s.t, s.d, s.steps+1)
	said := strings.Fields(s.d.Shell(s.t, g.id, "forkd-fork 1"))
	s.say("fork from inside %s: %v", g.id, said)
	if len(said) != 2 || said[0] != "0" {
		s.t.Fatalf("forkd-fork in %s printed %q", g.id, said)
	}
	child := g.copyAs(said[1], "") // child of an intermediate snapshot, which is deleted soon
	child.mayFork = true
	s.guests = append(s.guests, child)
	child.answers(s.t, s.d)
	g.answers(s.t, s.d)
}

func (s *sequence) kill() {
	i := s.random.IntN(len(s.guests))
	s.say("kill %s", s.guests[i].id)
	if err := s.d.Kill(s.guests[i].id); err != nil {
		s.t.Fatal(err)
	}
	s.guests = slices.Delete(s.guests, i, i+1)
}

// remove deletes an unused snapshot. It returns false if only the parent is left.
func (s *sequence) remove() bool {
	for _, i := range s.random.Perm(len(s.names)) {
		tag := s.names[i]
		if tag == parentTag {
			continue
		}
		err := s.d.Client.DeleteSnapshot(s.t.Context(), tag, client.DeleteOptions{})
		if client.CodeOf(err) == api.CodeConflict {
			continue // it has running children, or snapshots built on it
		}
		if err != nil {
			s.t.Fatalf("delete %s: %v", tag, err)
		}
		s.say("delete %s", tag)
		s.names = slices.Delete(s.names, i, i+1)
		delete(s.tags, tag)
		return true
	}
	return false
}
