package audit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

func TestFilters(t *testing.T) {
	tr := newTrial(t)
	l := tr.open()
	for _, e := range []Entry{
		{Action: "sandbox.fork", Sandbox: "sb-1", Tenant: "a", Request: "r1"},
		{Action: "sandbox.exec", Sandbox: "sb-1", Tenant: "a", Result: Failed},
		{Action: "snapshot.delete", Snapshot: "py", Tenant: "b", Time: began.Add(time.Hour)},
		{Action: "sandbox.list", Tenant: "b", Read: true},
	} {
		if e.Result == "" {
			e.Result = OK
		}
		l.Add(e)
	}
	tr.closed(l)
	for want, q := range map[string]Query{
		"sandbox.fork sandbox.exec":              {Filter: Filter{Sandbox: "sb-1"}},
		"snapshot.delete sandbox.list":           {Filter: Filter{Tenant: "b"}},
		"sandbox.exec":                           {Filter: Filter{Result: Failed}},
		"sandbox.fork":                           {Filter: Filter{Request: "r1"}},
		"snapshot.delete":                        {Filter: Filter{Since: began.Add(time.Minute)}},
		"sandbox.fork sandbox.exec sandbox.list": {Filter: Filter{Action: "sandbox."}},
		"sandbox.list audit.closed":              {Last: 2},
		"snapshot.delete audit.closed":           {Last: 2, Filter: Filter{Changes: true}},
		"":                                       {Filter: Filter{Action: "sandbox"}},
	} {
		if got := actions(tr.entries(q)); got != want {
			t.Errorf("%+v: got %q, want %q", q, got, want)
		}
	}
}

// A reader asks for memory before it keeps lines, releases it for lines passed on, and ends if there is no room.
func TestKeptLinesAreAskedFor(t *testing.T) {
	tr := newTrial(t)
	l := tr.open()
	for i := range 300 {
		l.Add(Entry{Action: "sandbox.exec", Result: OK, Sandbox: fmt.Sprint(i)})
	}
	tr.closed(l)
	for _, c := range []struct {
		name string
		last int
		room int // in addition to the buffer
		most int // kept at the same time
		err  error
	}{
		{"all lines pass", 0, 0, 0, nil},
		{"the last 10 are kept", 10, 30 << 10, 30 << 10, nil},
		{"there is no room for 200", 200, 100 << 10, 100 << 10, ErrNoRoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			held, most := 0, 0
			err := Read(t.Context(), tr.path, Query{Last: c.last, Keep: func(n int) bool {
				if held+n > MaxLine+c.room {
					return false
				}
				held += n
				most = max(most, held)
				return true
			}}, func([]byte, Entry) error { return nil })
			if !errors.Is(err, c.err) || most > MaxLine+c.most || err == nil && held != MaxLine {
				t.Errorf("%v; at most %d bytes are kept, %d in the end", err, most, held)
			}
		})
	}
}

// A follower gets each line once, across files that are rolled over.
func TestFollowing(t *testing.T) {
	tr := newTrial(t)
	tr.cfg.MaxBytes, tr.cfg.Keep = 3000, 100
	l := tr.open()
	const n = 200
	enough := errors.New("enough")
	ended := make(chan error, 1)
	began := make(chan struct{}, 1)
	var got []string
	go func() {
		ended <- Read(context.Background(), tr.path, Query{Follow: true}, func(_ []byte, e Entry) error {
			switch {
			case e.Action == ActionOpened:
				began <- struct{}{}
			case e.Action == "sandbox.exec":
				got = append(got, e.Sandbox)
			}
			if len(got) == n {
				return enough
			}
			return nil
		})
	}()
	<-began
	for i := range n {
		l.Add(Entry{Action: "sandbox.exec", Result: OK, Sandbox: fmt.Sprint(i)})
	}
	if err := <-ended; err != enough {
		t.Fatal(err)
	}
	for i, id := range got {
		if id != fmt.Sprint(i) {
			t.Fatalf("line %d is of %s", i, id)
		}
	}
}

// A follower continues with the lines of the next daemon, even if the previous one was killed while writing a
// line.
func TestFollowingOutlivesTheDaemon(t *testing.T) {
	tr := newTrial(t)
	l := tr.open()
	enough := errors.New("enough")
	ended, seen := make(chan error, 1), make(chan string)
	go func() {
		ended <- Read(context.Background(), tr.path, Query{Follow: true}, func(_ []byte, e Entry) error {
			seen <- e.Action
			if e.Action == "last" {
				return enough
			}
			return nil
		})
	}()
	expect := func(actions ...string) {
		t.Helper()
		for _, want := range actions {
			if got := <-seen; got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
	}
	l.Add(Entry{Action: "first", Result: OK})
	expect(ActionOpened, "first")
	tr.closed(l)
	expect(ActionClosed)
	f, err := os.OpenFile(tr.path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"seq":4,"prev":`)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	l = tr.open()
	l.Add(Entry{Action: "last", Result: OK})
	expect(ActionTorn, ActionOpened, "last")
	if err := <-ended; err != enough {
		t.Error(err)
	}
	tr.closed(l)
}

func TestFollowingEndsWithItsContext(t *testing.T) {
	tr := newTrial(t)
	tr.open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Read(ctx, tr.path, Query{Follow: true}, func([]byte, Entry) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestALogThatIsNotThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := Read(t.Context(), path, Query{}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := Verify(t.Context(), path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestHeads(t *testing.T) {
	h := Head{Seq: 7, Hash: Zero}
	if got, err := ParseHead(h.String()); err != nil || got != h {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "7", "7:", ":" + Zero, "0:" + Zero, "-1:" + Zero, "7:xyz", "7:" + Zero + "0"} {
		if _, err := ParseHead(bad); err == nil {
			t.Errorf("%q is a head", bad)
		}
	}
}

// The format is documented in docs/inside/formats/audit.md. The golden file must stay readable forever.
func TestGolden(t *testing.T) {
	golden := filepath.Join("testdata", "audit.v1.log")
	if *update {
		tr := newTrial(t)
		tr.cfg.Opened = Entry{Note: "forkd 1.2.3; network verdicts: /run/forkd/net/audit.log"}
		l := tr.open()
		l.Add(Entry{Action: "sandbox.fork", Result: OK, Request: "00112233445566aa", Key: "k1", KeyName: "ci", Tenant: "acme",
			Principal: "key", Sandbox: "sb-5f3a0012-0001", Snapshot: "py", Count: 2, Method: "POST", Path: "/v1/sandboxes",
			Status: 201, LatencyUS: 20123, UserAgent: "forkd-cli/1.2.3"})
		l.Add(Entry{Action: "file.write", Result: Refused, Request: "00112233445566ab", Principal: "local",
			Sandbox: "sb-none", Object: "/etc/motd", Method: "POST", Path: "/v1/sandboxes/sb-none/agent/files", Status: 404,
			LatencyUS: 80, Error: `sandbox "sb-none" not found`})
		tr.closed(l)
		for _, suffix := range []string{"", headSuffix} {
			b, err := os.ReadFile(tr.path + suffix)
			if err == nil {
				err = os.WriteFile(golden+suffix, b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := Verify(t.Context(), golden)
	if err != nil || !r.OK || r.Lines != 4 {
		t.Fatalf("got %+v, %v", r, err)
	}
	var all []Entry
	err = Read(t.Context(), golden, Query{}, func(_ []byte, e Entry) error { all = append(all, e); return nil })
	if err != nil || actions(all) != "audit.opened sandbox.fork file.write audit.closed" || all[1].Tenant != "acme" ||
		all[2].Error != `sandbox "sb-none" not found` || all[1].LatencyUS != 20123 {
		t.Errorf("got %+v, %v", all, err)
	}
}

// A line forged by a process with write access is detected (Verify), and cannot hide later lines with a large
// number.
func TestALineWithALargeNumberHidesNothing(t *testing.T) {
	tr := newTrial(t)
	tr.written(2)
	all := strings.SplitAfter(tr.read(), "\n")
	forged := strings.Replace(all[1], `"seq":2,`, `"seq":9999,`, 1)
	tr.write(all[0] + forged + strings.Join(all[1:], ""))
	if forged == all[1] || tr.verify().OK {
		t.Error("nothing shows")
	}
	const want = "audit.opened sandbox.fork sandbox.fork sandbox.fork audit.closed"
	if got := actions(tr.entries(Query{})); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A forged last line of a full file hides no line of the next file from readers or followers.
func TestAForgedLastLineHidesNothing(t *testing.T) {
	tr := newTrial(t)
	tr.cfg.MaxBytes = 2000
	tr.written(30)
	files, err := rolledFiles(tr.path)
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	b, err := os.ReadFile(files[0].path)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.SplitAfter(string(b), "\n")
	last := all[len(all)-2]
	forged := `{"seq":9999,` + last[strings.Index(last, `"prev"`):]
	if err := os.WriteFile(files[0].path, []byte(strings.Join(all[:len(all)-2], "")+forged), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := len(tr.entries(Query{Filter: Filter{Action: "sandbox.fork"}})); got != 30 {
		t.Errorf("%d lines are read, want 30", got)
	}
}
