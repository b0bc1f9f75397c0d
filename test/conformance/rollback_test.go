package conformance

import (
	"testing"
	"time"

	"github.com/forkd/forkd/api"
)

// rollbacks are rows whose other guest is the rolled-back source itself.
var rollbacks = []struct {
	name string
	load bool
	mode api.BranchMode
}{
	{"rollback", false, api.BranchDiff},
	{"rollback, load", true, api.BranchLive},
}

// rollback takes an instant of a sandbox, lets the sandbox overwrite all of its canaries, and rolls
// it back.
func (s *suite) rollback(t *testing.T, id string, mode api.BranchMode, load bool, cells *cells) {
	s.t = t
	was := s.eras[id]
	at := s.before(id, load)
	tag := s.newTag()
	s.branch(id, api.BranchRequest{Tag: tag, Mode: mode})
	at.after = s.canary(id, "look")
	s.newEra(id)
	s.canary(id, "arm", "nonce", s.newTag())
	s.eval(id, "os.kill(json.loads(canary('look'))['pid'], 9)")
	at.asked = time.Now()
	info, err := s.c.Rollback(t.Context(), id, tag)
	if err != nil {
		t.Fatalf("roll %s back to %s: %v", id, tag, err)
	}
	if info.ID != id || info.Status != api.SandboxRunning {
		t.Errorf("the answer is %+v", info)
	}
	at.made = time.Now()
	s.eras[id] = was
	s.looksLike(id, at, cells)
	cells.note("source", "itself")
	s.apart([]string{id}, cells)
	cells.settle(t)
}
