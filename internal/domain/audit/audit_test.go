package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestALogThatWasLeftAloneIsWhole(t *testing.T) {
	tr := newTrial(t)
	tr.written(5)
	tr.written(3) // a second daemon continues
	r := tr.whole()
	if r.Lines != 12 || r.First != 1 || r.Last.Seq != 12 || r.Lost != 0 {
		t.Errorf("the report is %+v", r)
	}
	if st, err := os.Stat(tr.path); err != nil || st.Mode() != 0o600 {
		t.Errorf("mode is %v, %v", st.Mode(), err)
	}
	if r := tr.verify(r.Last); !r.OK {
		t.Errorf("with the head that it printed: %+v", r.Problems)
	}
}

// Any change to a line is detected, including the first and the last line.
func TestEveryChangeShows(t *testing.T) {
	const lines = 7
	for name, change := range map[string]func(all []string, i int) []string{
		"edited":  func(all []string, i int) []string { all[i] = strings.Replace(all[i], `"ok"`, `"no"`, 1); return all },
		"removed": func(all []string, i int) []string { return append(all[:i], all[i+1:]...) },
		"twice":   func(all []string, i int) []string { return append(all[:i+1], all[i:]...) },
		"cut":     func(all []string, i int) []string { return all[:i] },
		"garbled": func(all []string, i int) []string { all[i] = "x" + all[i]; return all },
		"halved":  func(all []string, i int) []string { all[i] = all[i][:len(all[i])/2] + "\n"; return all },
		"empty line": func(all []string, i int) []string {
			return append(all[:i:i], append([]string{"\n"}, all[i:]...)...)
		},
		"moved": func(all []string, i int) []string {
			all[i], all[(i+1)%lines] = all[(i+1)%lines], all[i]
			return all
		},
		"not ended": func(all []string, i int) []string { all[i] = strings.TrimSuffix(all[i], "\n"); return all },
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t)
			tr.written(lines - 2)
			was := tr.read()
			for i := range lines {
				all := strings.SplitAfter(was, "\n")[:lines]
				if name == "not ended" && i == lines-1 {
					continue // all bytes of the line are unchanged
				}
				tr.write(strings.Join(change(all, i), ""))
				if r := tr.verify(); r.OK {
					t.Errorf("line %d: nothing shows", i+1)
				}
			}
		})
	}
}

// Without the head, the lines do not reveal a truncated end, but the missing head does.
func TestAHeadThatIsGoneShows(t *testing.T) {
	tr := newTrial(t)
	tr.written(5)
	noted := tr.whole().Last
	all := strings.SplitAfter(tr.read(), "\n")
	tr.write(strings.Join(all[:4], ""))
	if err := os.Remove(tr.path + headSuffix); err != nil {
		t.Fatal(err)
	}
	if r := tr.verify(); r.OK || !strings.Contains(r.Problems[0].What, "missing") {
		t.Errorf("got %+v", r)
	}
	// A forged history with its own head is only detected by a head recorded elsewhere.
	tr.write("")
	tr.written(7)
	tr.whole()
	if r := tr.verify(noted); r.OK {
		t.Errorf("got %+v", r)
	}
}

// A daemon that finds fewer lines than before records it, and its new lines do not hide the loss.
func TestACutWhileNoDaemonRanStaysVisible(t *testing.T) {
	tr := newTrial(t)
	tr.written(5)
	all := strings.SplitAfter(tr.read(), "\n")
	tr.write(strings.Join(all[:4], ""))
	tr.written(2)
	r := tr.verify()
	if r.OK || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].What, "lines 5 to 7") {
		t.Errorf("got %+v", r.Problems)
	}
	if got := tr.entries(Query{Filter: Filter{Action: ActionCut}}); len(got) != 1 || got[0].Seq != 8 || got[0].Head != 7 {
		t.Errorf("got %+v", got)
	}
}

func TestARewrittenEndStaysVisible(t *testing.T) {
	tr := newTrial(t)
	tr.written(1)
	all := strings.SplitAfter(tr.read(), "\n")
	all[2] = strings.Replace(all[2], "audit.closed", "audit.clopen", 1)
	tr.write(strings.Join(all, ""))
	tr.written(1)
	if r := tr.verify(); r.OK {
		t.Error("nothing shows")
	}
}

// A killed daemon leaves any part of its last line. The next daemon ends the line, records it, and the chain
// stays valid.
func TestALineThatWasTornIsHealed(t *testing.T) {
	tr := newTrial(t)
	l := tr.open()
	l.Add(Entry{Action: "sandbox.kill", Result: OK})
	tr.tick <- began // the head includes this line
	tr.tick <- began
	head, err := os.ReadFile(tr.path + headSuffix)
	if err != nil {
		t.Fatal(err)
	}
	l.Add(Entry{Action: "sandbox.kill", Result: OK, Sandbox: "sb-last"})
	tr.closed(l)
	all := strings.SplitAfter(tr.read(), "\n")
	before, torn := strings.Join(all[:2], ""), all[2]
	for n := 0; n <= len(torn); n += 1 + n%7*(len(torn)-n)/len(torn) { // all offsets near the end
		if err := os.WriteFile(tr.path+headSuffix, head, 0o600); err != nil {
			t.Fatal(err)
		}
		tr.write(before + torn[:n])
		if r := tr.verify(); !r.OK || r.Pending != (n > 0 && n < len(torn)-1) {
			t.Fatalf("%d bytes of it: before the next daemon: %+v", n, r)
		}
		tr.written(1)
		r := tr.whole()
		want := "audit.opened sandbox.kill audit.torn audit.opened sandbox.fork audit.closed"
		switch {
		case n == 0:
			want = strings.Replace(want, " audit.torn", "", 1)
		case n >= len(torn)-1: // at most its newline was missing
			want = strings.Replace(want, "audit.torn", "sandbox.kill", 1)
		}
		if got := actions(tr.entries(Query{})); got != want || r.Torn != strings.Count(want, "torn") {
			t.Fatalf("%d bytes of it: got %s, want %s", n, got, want)
		}
	}
}

// Add does not wait for a hanging disk. The next line counts the lost entries.
func TestADiskThatHangsKeepsNobodyWaiting(t *testing.T) {
	tr := newTrial(t)
	d := &disk{room: -1, hangs: make(chan struct{}), began: make(chan struct{}, 1)}
	tr.cfg.open, tr.cfg.queue = d.open, 8
	l := tr.open()
	<-d.began
	start := time.Now()
	for i := range 10000 {
		l.Add(Entry{Action: "sandbox.fork", Result: OK, Count: i + 1})
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("10000 entries took %s", took)
	}
	if s := l.Stats(); s.Lost != 10000-8 || s.Queued != 8 {
		t.Errorf("got %+v", s)
	}
	if err := l.Close(time.Millisecond); err == nil {
		t.Error("the log closed before its disk answered")
	}
	close(d.hangs)
	tr.closed(l)
	r := tr.whole()
	if s := l.Stats(); r.Lost != 10000-8 || s.Lost != r.Lost || s.Written != r.Lines {
		t.Errorf("got %+v, %+v", r, s)
	}
}

// On a full disk lines end anywhere. Once there is room again, the log records how much is missing, and where.
func TestAFullDiskIsToldOfAndHealed(t *testing.T) {
	for room := 0; room < 1200; room += 41 {
		tr := newTrial(t)
		d := &disk{room: -1}
		tr.cfg.open = d.open
		l := tr.open()
		tr.tick <- began
		tr.tick <- began // the first lines are written
		d.set(room)
		for i := range 20 {
			l.Add(Entry{Action: "sandbox.fork", Result: OK, Count: i + 1})
		}
		for len(l.queue) > 0 {
			tr.tick <- began
		}
		tr.tick <- began
		lost := l.Stats().Lost
		if lost == 0 || lost == 20 != (room < 200) && room > 600 {
			t.Fatalf("room for %d: %d were lost", room, lost)
		}
		d.set(3) // not enough for any line
		tr.tick <- began
		tr.tick <- began
		d.set(-1)
		for range 3 { // the last one is taken when the first two have been handled
			tr.tick <- began
		}
		told := tr.verify()
		if !told.OK || told.Lost != lost {
			t.Fatalf("room for %d: lost %d, the log says %+v", room, lost, told)
		}
		tr.closed(l)
		r := tr.whole()
		if forks := len(tr.entries(Query{Filter: Filter{Action: "sandbox.fork"}})); forks+int(r.Lost) != 20 {
			t.Fatalf("room for %d: %d lines and %d lost", room, forks, r.Lost)
		}
	}
}

// Many goroutines add entries while files are rolled over and the oldest are removed. Every entry is in a line,
// or counted as lost, or in a file that the log itself removed.
func TestRollingOverUnderLoad(t *testing.T) {
	const writers, each = 16, 400
	for _, keep := range []int{3, 1000} {
		tr := newTrial(t)
		tr.cfg.MaxBytes, tr.cfg.Keep, tr.cfg.queue = 20_000, keep, 256
		tr.cfg.tick = nil
		l := tr.open()
		for there := false; !there; _, there, _ = readHead(tr.path) {
			runtime.Gosched()
		}
		stop := make(chan struct{})
		var readers, all sync.WaitGroup
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r := tr.verify(); !r.OK && keep == 1000 {
					t.Errorf("while it is written: %+v", r.Problems)
					return
				}
			}
		})
		for w := range writers {
			all.Go(func() {
				for i := range each {
					l.Add(Entry{Action: "sandbox.exec", Result: OK, Sandbox: fmt.Sprintf("sb-%d-%d", w, i)})
				}
			})
		}
		all.Wait()
		tr.closed(l)
		close(stop)
		readers.Wait()
		r := tr.whole()
		files, err := rolledFiles(tr.path)
		if err != nil || len(files) == 0 || len(files) > keep {
			t.Errorf("there are %d files, %v", len(files), err)
		}
		s := l.Stats()
		if got := r.Dropped + r.Lines; got != s.Written || r.Last.Seq != got {
			t.Errorf("%d lines are there or dropped, %d were written", got, s.Written)
		}
		seen := map[string]bool{}
		for _, e := range tr.entries(Query{Filter: Filter{Action: "sandbox.exec"}}) {
			if seen[e.Sandbox] {
				t.Errorf("%s is there twice", e.Sandbox)
			}
			seen[e.Sandbox] = true
		}
		if keep == 1000 && len(seen)+int(s.Lost) != writers*each {
			t.Errorf("%d are there, %d were lost, of %d", len(seen), s.Lost, writers*each)
		}
		if keep == 3 {
			if err := os.Remove(files[0].path); err != nil {
				t.Fatal(err)
			}
			if r := tr.verify(); r.OK {
				t.Error("a file is gone that the log did not remove, and nothing shows")
			}
		}
	}
}

func TestAFileGoneInTheMiddleShows(t *testing.T) {
	tr := newTrial(t)
	tr.cfg.MaxBytes = 2000
	tr.written(100)
	tr.whole()
	files, err := rolledFiles(tr.path)
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if err := os.Remove(files[1].path); err != nil {
		t.Fatal(err)
	}
	if r := tr.verify(); r.OK {
		t.Error("nothing shows")
	}
}

// A daemon that ended between the two renames leaves no file under the log's name.
func TestADaemonThatEndedWhileRollingOver(t *testing.T) {
	tr := newTrial(t)
	tr.written(4)
	if err := os.Rename(tr.path, tr.path+".000001"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tr.path+nextSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tr.whole()
	tr.written(1)
	if r := tr.whole(); r.Files != 2 || r.Lines != 10 {
		t.Errorf("got %+v", r)
	}
}

func TestTwoDaemonsDoNotShareALog(t *testing.T) {
	tr := newTrial(t)
	tr.open()
	if l, err := openChain(tr.cfg); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("got %v, %v", l, err)
	}
}

// The file of an earlier forkd has no chain. It is moved aside, without replacing an existing file.
func TestALogWithoutAChainIsMovedAside(t *testing.T) {
	tr := newTrial(t)
	const old = `{"time":"2026-01-02T03:04:05Z","method":"GET","path":"/version","status":200,"latency_us":3}` + "\n"
	tr.write(old)
	tr.written(1)
	tr.whole()
	if b, err := os.ReadFile(tr.path + foreignSuffix); err != nil || string(b) != old {
		t.Errorf("got %q, %v", b, err)
	}
	tr.write(old)
	if err := os.Remove(tr.path + headSuffix); err != nil {
		t.Fatal(err)
	}
	if _, err := openChain(tr.cfg); err == nil || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("got %v", err)
	}
}

func TestAPipeWillDo(t *testing.T) {
	tr := newTrial(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tr.cfg.Path = fmt.Sprintf("/dev/fd/%d", w.Fd())
	if _, err := os.Stat(tr.cfg.Path); err != nil {
		t.Skip("no /dev/fd")
	}
	l := tr.open()
	w.Close()
	l.Add(Entry{Action: "sandbox.fork", Result: OK})
	tr.closed(l)
	s := newScanner(r)
	for i, want := range []string{ActionOpened, "sandbox.fork", ActionClosed} {
		if p, err := s.next(); err != nil || p.entry.Action != want || p.entry.Seq != uint64(i+1) {
			t.Errorf("line %d is %+v, %v", i+1, p.entry, err)
		}
	}
}

// The text of a request cannot produce an invalid line or one that is too long.
func TestWhatRequestsSayIsBounded(t *testing.T) {
	tr := newTrial(t)
	l := tr.open()
	bad := strings.Repeat("\x00\"\n\xff<", 100000)
	e := Entry{Action: "sandbox.exec", Result: Failed, Path: bad, UserAgent: bad, Error: bad, Sandbox: bad, Object: bad,
		Key: bad, KeyName: bad, Tenant: bad, Principal: bad, Snapshot: bad, Image: bad, Method: bad, Request: bad}
	l.Add(e)
	tr.closed(l)
	if r := tr.whole(); r.Lines != 3 || r.Lost != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestALogThatCannotBeOpened(t *testing.T) {
	tr := newTrial(t)
	tr.cfg.Path = filepath.Join(tr.path, "nowhere", "audit.log")
	if _, err := openChain(tr.cfg); err == nil {
		t.Error("it opened")
	}
}
