package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/audit/seal"
)

// sealedTrial is a log that is sealed from its first line on.
type sealedTrial struct {
	*trial
	key seal.Key
	now time.Time
}

func newSealedTrial(t *testing.T) *sealedTrial {
	s := &sealedTrial{trial: newTrial(t), now: began}
	s.cfg.tick = nil
	s.cfg.Now = func() time.Time { return s.now }
	key, err := StartSealing(s.path, false)
	if err != nil {
		t.Fatal(err)
	}
	s.key = key
	return s
}

// daemon runs a daemon that writes n changes of the operator and one of a tenant. Its end seals them.
func (s *sealedTrial) daemon(n int) {
	s.Helper()
	l, err := Open(s.cfg)
	if err != nil {
		s.Fatal(err)
	}
	for i := range n {
		l.Add(Entry{Action: "sandbox.kill", Result: OK, Sandbox: fmt.Sprintf("sb-%d", i)})
	}
	l.Add(Entry{Action: "sandbox.fork", Result: OK, Tenant: "acme"})
	if err := l.Close(30 * time.Second); err != nil {
		s.Fatal(err)
	}
	s.now = s.now.Add(time.Minute)
}

func (s *sealedTrial) sealed(key seal.Key) Report {
	s.Helper()
	r, err := VerifySealed(s.Context(), s.path, key)
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// wants fails unless a verification has just the named problem.
func (s *sealedTrial) wants(says string) {
	s.Helper()
	r := s.sealed(s.key)
	if r.OK || !strings.Contains(fmt.Sprint(r.Problems), says) {
		s.Errorf("problems are %v, want %q", r.Problems, says)
	}
}

// forge rewrites lines of a chain as a process that can write to all files does: hashes and head follow.
func (s *sealedTrial) forge(chain string, edit func(*Entry) (keep bool)) {
	s.Helper()
	path := pathOf(s.path, chain)
	b, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	at, out := Head{Hash: Zero}, ""
	for text := range strings.Lines(string(b)) {
		e, err := Decode([]byte(strings.TrimSuffix(text, "\n")))
		if err != nil {
			s.Fatal(err)
		}
		if !edit(&e) {
			continue
		}
		line, next, err := at.next(e)
		if err != nil {
			s.Fatal(err)
		}
		at, out = next, out+string(line)+"\n"
	}
	if err := errors.Join(os.WriteFile(path, []byte(out), 0o600), writeHead(path, at)); err != nil {
		s.Fatal(err)
	}
}

func TestSealsOfAnIntactLog(t *testing.T) {
	s := newSealedTrial(t)
	for range 3 {
		s.daemon(2)
	}
	r := s.sealed(s.key)
	if !r.OK || r.Sealed.Seals != 3 || r.Sealed.First != 1 || r.Sealed.Last != 3 || !r.Sealed.Until.Equal(began.Add(2*time.Minute)) {
		t.Errorf("problems %v, seals %+v", r.Problems, r.Sealed)
	}
	if all := actions(s.entries(Query{})); strings.Contains(all, ActionSealed) {
		t.Errorf("seals are among the actions: %s", all)
	}
	r = s.sealed(seal.New())
	if r.OK || r.Status != Changed || !strings.Contains(fmt.Sprint(r.Problems), "no seal of key") {
		t.Errorf("with another key: %v", r.Problems)
	}
	s.whole() // without a key
}

// Who can write to all files makes a history that verifies, but not one with the same seals.
func TestForgedHistories(t *testing.T) {
	all := func(*Entry) bool { return true }
	for name, c := range map[string]struct {
		forge func(s *sealedTrial)
		says  string
	}{
		"a changed line": {func(s *sealedTrial) {
			s.forge("", func(e *Entry) bool { e.Sandbox = strings.Replace(e.Sandbox, "sb-1", "sb-9", 1); return true })
		}, "differs from the sealed one"},
		"a removed line": {func(s *sealedTrial) {
			s.forge("", func(e *Entry) bool { return e.Sandbox != "sb-1" })
		}, "differs from the sealed one"},
		"a cut at the end": {func(s *sealedTrial) {
			n := 0
			s.forge("tenant-acme", func(*Entry) bool { n++; return n < 3 })
		}, "line 3 is missing: a seal knows it"},
		"a removed chain": {func(s *sealedTrial) {
			s.forge("", func(e *Entry) bool { return e.Action != ActionChain })
			remove(s, "tenant-acme")
		}, "the chain is not there"},
		"removed seals": {func(s *sealedTrial) { remove(s, chainSeals) }, "there is no seal of key"},
		"a seal less": {func(s *sealedTrial) {
			s.forge(chainSeals, func(e *Entry) bool { return e.Seal.Epoch != 2 })
		}, "seals 2 to 2 are missing"},
		"seals in another order": {func(s *sealedTrial) {
			s.forge(chainSeals, func(e *Entry) bool { e.Seal.Epoch = 4 - e.Seal.Epoch; return true })
		}, "was changed, or is not of this key"},
		"a seal of other lines": {func(s *sealedTrial) {
			s.forge(chainSeals, func(e *Entry) bool { e.Seal.Heads[0].Hash = Zero; return true })
		}, "was changed"},
		"another time": {func(s *sealedTrial) {
			s.forge(chainSeals, func(e *Entry) bool { e.Time = e.Time.Add(time.Second); return true })
		}, "was changed"},
		"a huge number": {func(s *sealedTrial) {
			s.forge(chainSeals, func(e *Entry) bool { e.Seal.Epoch = 1 << 52; return true })
		}, "has the number"},
		"the key of today": {func(s *sealedTrial) { // which makes seals of a forged past, but not with old numbers
			s.forge("", func(e *Entry) bool { e.Sandbox = ""; return true })
			s.forge(chainSeals, func(e *Entry) bool { return e.Seal.Epoch == 1 })
			s.daemon(1)
		}, "seals 2 to 3 are missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSealedTrial(t)
			for range 3 {
				s.daemon(2)
			}
			s.forge("", all)
			if r := s.sealed(s.key); !r.OK {
				t.Fatalf("before: %v", r.Problems)
			}
			c.forge(s)
			s.wants(c.says)
			if r := s.verify(); name != "the key of today" && !r.OK && !strings.Contains(fmt.Sprint(r.Problems), "seals") {
				t.Errorf("the forger was clumsy: %v", r.Problems)
			}
		})
	}
}

func remove(s *sealedTrial, chain string) {
	s.Helper()
	for _, path := range []string{pathOf(s.path, chain), pathOf(s.path, chain) + headSuffix} {
		if err := os.Remove(path); err != nil {
			s.Fatal(err)
		}
	}
}

// After a crash between a seal and the change of its key, the same key seals again.
func TestACrashBetweenASealAndTheNextKey(t *testing.T) {
	s := newSealedTrial(t)
	s.daemon(1)
	key, err := os.ReadFile(SealPath(s.path))
	if err != nil {
		t.Fatal(err)
	}
	s.daemon(1)
	if err := os.WriteFile(SealPath(s.path), key, 0o600); err != nil {
		t.Fatal(err)
	}
	s.daemon(1)
	s.daemon(1)
	if r := s.sealed(s.key); !r.OK || r.Sealed.Seals != 4 || r.Sealed.Last != 3 {
		t.Errorf("problems %v, seals %+v", r.Problems, r.Sealed)
	}
}

func TestARenewedKey(t *testing.T) {
	s := newSealedTrial(t)
	s.daemon(1)
	if _, err := StartSealing(s.path, false); err == nil || !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second start: %v", err)
	}
	for range 2 {
		next, err := StartSealing(s.path, true)
		if err != nil {
			t.Fatal(err)
		}
		s.daemon(1)
		r := s.sealed(next)
		if !r.OK || r.Sealed.Seals != 1 || r.Sealed.Others == 0 {
			t.Errorf("problems %v, seals %+v", r.Problems, r.Sealed)
		}
		if r := s.sealed(s.key); !r.OK || r.Sealed.Seals != 1 {
			t.Errorf("with the old key: problems %v, seals %+v", r.Problems, r.Sealed)
		}
	}
}

// Seals rotate, and the remaining ones are verified with the first key.
func TestSealsRotate(t *testing.T) {
	s := newSealedTrial(t)
	s.cfg.MaxBytes, s.cfg.Keep = 2000, 1
	for range 20 {
		s.daemon(0)
	}
	if r := s.sealed(s.key); !r.OK || r.Sealed.First < 5 || r.Sealed.Last != 20 || r.Sealed.Seals >= 20 {
		t.Errorf("problems %v, seals %+v", r.Problems, r.Sealed)
	}
}

// A sealer has its faults logged once, and seals again when they are over. No key is lost.
func TestSealsOnAFullDisk(t *testing.T) {
	s := newSealedTrial(t)
	d := &disk{room: -1}
	var log strings.Builder
	c := s.cfg.complete()
	c.open, c.Log = d.open, slog.New(slog.NewTextHandler(&log, nil))
	by := newSealer(c)
	defer by.close()
	head := Head{Seq: 1, Hash: strings.Repeat("ab", 32)}
	by.seal([]Head{head})
	d.set(20)
	for range 3 {
		head.Seq++
		by.seal([]Head{head})
	}
	if n := strings.Count(log.String(), syscall.ENOSPC.Error()); n != 1 {
		t.Errorf("the full disk is in the log %d times: %s", n, log.String())
	}
	d.set(-1)
	by.seal([]Head{head})
	by.seal([]Head{head}) // no new line
	by.close()
	r := sealReader{first: s.key, path: s.path, heads: map[string]map[uint64]string{}, next: s.key, epoch: 1,
		report: SealReport{Key: s.key.ID()}}
	if err := r.read(t.Context()); err != nil || len(r.problems) > 0 || r.report.Seals != 2 || r.report.Last != 2 {
		t.Errorf("%v, problems %v, seals %+v", err, r.problems, r.report)
	}
}

// A damaged key is reported, and the log goes on without seals.
func TestADamagedKey(t *testing.T) {
	s := newSealedTrial(t)
	s.daemon(1)
	if err := os.WriteFile(SealPath(s.path), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.daemon(1)
	if !strings.Contains(log.String(), "not sealed") || !strings.Contains(log.String(), "renew") {
		t.Errorf("log: %s", log.String())
	}
	if r := s.sealed(s.key); !r.OK || r.Sealed.Last != 1 {
		t.Errorf("problems %v, seals %+v", r.Problems, r.Sealed)
	}
}

// All heads are sealed once an hour, and only the changed ones in between; many heads take several seals.
func TestWhatASealHolds(t *testing.T) {
	s := newSealedTrial(t)
	by := newSealer(s.cfg.complete())
	defer by.close()
	many := make([]Head, 2*maxSealed)
	for i := range many {
		many[i] = Head{Chain: fmt.Sprintf("tenant-a%023d.activity", i)[:40], Seq: 1 << 52, Hash: strings.Repeat("ab", 32)}
	}
	by.seal(many)
	many[3].Seq++
	by.seal(many)
	s.now = s.now.Add(sealIdle)
	by.seal(many)
	by.close()
	b, err := os.ReadFile(pathOf(s.path, chainSeals))
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	for line := range strings.Lines(string(b)) {
		counts = append(counts, strings.Count(line, `"hash"`))
	}
	if fmt.Sprint(counts) != "[256 256 1 256 256]" {
		t.Errorf("heads by seal: %v", counts)
	}
}

func TestAKeyInADirectoryThatIsNotThere(t *testing.T) {
	if _, err := StartSealing(filepath.Join(t.TempDir(), "no", "audit.log"), false); err == nil {
		t.Error("it was made")
	}
}
