package audit

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// trial is a log in its own directory.
type trial struct {
	*testing.T
	path string
	cfg  Config
	tick chan time.Time
}

func newTrial(t *testing.T) *trial {
	tr := &trial{T: t, path: filepath.Join(t.TempDir(), "audit.log"), tick: make(chan time.Time)}
	tr.cfg = Config{Path: tr.path, Now: func() time.Time { return began }, tick: tr.tick}
	return tr
}

func (tr *trial) open() *chainLog {
	tr.Helper()
	l, err := openChain(tr.cfg)
	if err != nil {
		tr.Fatal(err)
	}
	tr.Cleanup(func() { _ = l.Close(10 * time.Second) })
	return l
}

func (tr *trial) closed(l *chainLog) {
	tr.Helper()
	if err := l.Close(30 * time.Second); err != nil {
		tr.Fatal(err)
	}
}

// written writes a log like one daemon: n actions between the first and the last line.
func (tr *trial) written(n int) {
	tr.Helper()
	l := tr.open()
	for i := range n {
		l.Add(Entry{Action: "sandbox.fork", Result: OK, Count: i + 1})
	}
	tr.closed(l)
}

func (tr *trial) read() string {
	tr.Helper()
	b, err := os.ReadFile(tr.path)
	if err != nil {
		tr.Fatal(err)
	}
	return string(b)
}

func (tr *trial) write(content string) {
	tr.Helper()
	if err := os.WriteFile(tr.path, []byte(content), 0o600); err != nil {
		tr.Fatal(err)
	}
}

func (tr *trial) verify(known ...Head) Report {
	tr.Helper()
	r, err := Verify(context.Background(), tr.path, known...)
	if err != nil {
		tr.Fatal(err)
	}
	return r
}

// whole fails if a verification finds a problem.
func (tr *trial) whole() Report {
	tr.Helper()
	r := tr.verify()
	if !r.OK {
		tr.Fatalf("the log is not whole: %+v", r.Problems)
	}
	return r
}

// entries returns the results of a query.
func (tr *trial) entries(q Query) []Entry {
	tr.Helper()
	var all []Entry
	err := Read(tr.Context(), tr.path, q, func(_ []byte, e Entry) error {
		all = append(all, e)
		return nil
	})
	if err != nil {
		tr.Fatal(err)
	}
	return all
}

func actions(all []Entry) string {
	var out []string
	for _, e := range all {
		out = append(out, e.Action)
	}
	return strings.Join(out, " ")
}

// disk is a file whose writes are controlled by the test.
type disk struct {
	handle
	mu    sync.Mutex
	room  int           // bytes that still fit; negative for no limit
	hangs chan struct{} // writes wait until it is closed, unless it is nil
	began chan struct{} // receives a value when a write begins to wait
}

func (d *disk) open(path string) (handle, error) {
	f, err := openAppend(path)
	d.handle = f
	return d, err
}

func (d *disk) set(room int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = room
}

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	hangs, room := d.hangs, d.room
	d.mu.Unlock()
	if hangs != nil {
		select {
		case d.began <- struct{}{}:
		default:
		}
		<-hangs
	}
	if room < 0 || room >= len(b) {
		if room >= 0 {
			d.set(room - len(b))
		}
		return d.handle.Write(b)
	}
	n, _ := d.handle.Write(b[:room])
	d.set(0)
	return n, syscall.ENOSPC
}
