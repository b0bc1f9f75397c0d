package conformance

import (
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/test/harness"
)

//go:embed guest/canary.py
var canaryProgram string

//go:embed guest/start.py
var canaryClient string

// startCode is Python that starts the canaries in a guest.
func startCode() string {
	return "CANARY = " + strconv.QuoteToASCII(canaryProgram) + "\n" + canaryClient
}

// suite is one run over one runtime.
type suite struct {
	t    *testing.T // the running test
	c    *client.Client
	tag  string // the snapshot with the canaries
	name string // prefix of the names of all objects of this run

	made      int
	snapshots []string
	sandboxes []string

	era   int
	eras  map[string][]int // by sandbox: eras of the writes it may see, its own last
	spent map[string]account
	seen  map[string]string // the owner, by kind and value of unique values
}

// newSuite starts a daemon, unless a runtime is given. prepare changes the daemon before its start.
func newSuite(t *testing.T, prepare ...func(*harness.Daemon) error) *suite {
	t.Helper()
	b := make([]byte, 4)
	rand.Read(b)
	return &suite{t: t, c: runtime(t, prepare...), name: "conform-" + hex.EncodeToString(b), eras: map[string][]int{}, seen: map[string]string{}, spent: map[string]account{}}
}

func (s *suite) newTag() string {
	s.made++
	return fmt.Sprintf("%s-%d", s.name, s.made)
}

// fork makes n children of a snapshot. They are killed at the end of the suite.
func (s *suite) fork(tag string, n int) []string {
	s.t.Helper()
	defer s.spend("fork", time.Now())
	res, err := s.c.Fork(s.t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.ids(res.Sandboxes, n)
}

func (s *suite) ids(sbs []api.SandboxInfo, n int) []string {
	s.t.Helper()
	var ids []string
	for _, sb := range sbs {
		if sb.Error != "" {
			s.t.Fatalf("child %d: %s", sb.Index, sb.Error)
		}
		ids = append(ids, sb.ID)
	}
	s.sandboxes = append(s.sandboxes, ids...)
	if len(ids) != n {
		s.t.Fatalf("%d children, want %d", len(ids), n)
	}
	return ids
}

// branch makes a snapshot of a sandbox, which is deleted at the end of the suite.
func (s *suite) branch(id string, req api.BranchRequest) []string {
	s.t.Helper()
	defer s.spend("branch", time.Now())
	res, err := s.c.Branch(s.t.Context(), id, req)
	if err != nil {
		s.t.Fatalf("branch %s: %v", id, err)
	}
	s.snapshots = append(s.snapshots, res.Tag)
	if res.PauseMS != nil {
		s.t.Logf("%s: %s: pause %.1f ms, %d rounds, %d bytes", res.Tag, req.Mode, *res.PauseMS, res.Rounds, res.BytesWritten)
	}
	return s.ids(res.Children, req.N)
}

// kill ends sandboxes that are no longer needed.
func (s *suite) kill(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		if err := s.c.Kill(s.t.Context(), id); err != nil {
			s.t.Error(err)
		}
	}
}

// eval runs Python in a sandbox and returns the output.
func (s *suite) eval(id, code string) string {
	s.t.Helper()
	r, err := s.c.Eval(s.t.Context(), id, api.EvalRequest{Code: code, TimeoutSecs: 300})
	switch {
	case err != nil:
		s.t.Fatalf("%s: %v", id, err)
	case r.Error != nil:
		s.t.Fatalf("%s: %s", id, *r.Error)
	}
	return r.Stdout
}

// report is the report of the canaries in a guest.
type report struct {
	Steps      int64               `json:"steps"`
	Era        int                 `json:"era"`
	Complaints map[string][]string `json:"complaints"` // by column
	MonoNS     int64               `json:"mono_ns"`
	BootNS     int64               `json:"boot_ns"`
	WallNS     int64               `json:"wall_ns"`
	Error      string              `json:"error"`

	asked, answered time.Time // by the clock of this host
}

// canary sends a command to the canaries in a guest.
func (s *suite) canary(id, do string, args ...any) report {
	s.t.Helper()
	call := strconv.Quote(do)
	for i := 0; i < len(args); i += 2 {
		v, err := json.Marshal(args[i+1])
		if err != nil {
			s.t.Fatal(err)
		}
		call += fmt.Sprintf(", %s=%s", args[i], v)
	}
	r := report{asked: time.Now()}
	text := s.eval(id, "print(canary("+call+"))")
	r.answered = time.Now()
	s.spend(do, r.asked)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		s.t.Fatalf("%s says %q: %v", id, text, err)
	}
	if r.Error != "" {
		s.t.Fatalf("%s: %s: %s", id, do, r.Error)
	}
	return r
}

// spend records a duration for the summary at the end.
func (s *suite) spend(what string, since time.Time) {
	a := s.spent[what]
	a.times++
	a.took += time.Since(since)
	s.spent[what] = a
}

type account struct {
	times int
	took  time.Duration
}

// newEra makes a sandbox overwrite all repeatedly written places. No other sandbox may see these
// values.
func (s *suite) newEra(id string) {
	s.t.Helper()
	s.era++
	s.canary(id, "begin", "era", s.era)
	s.eras[id] = append(s.eras[id][:len(s.eras[id]):len(s.eras[id])], s.era)
}

// check makes a sandbox's canaries check everything.
func (s *suite) check(id string) report {
	s.t.Helper()
	return s.canary(id, "check", "eras", s.eras[id])
}
