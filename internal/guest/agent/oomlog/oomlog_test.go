package oomlog

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/oomline"
)

const (
	global = "3,1021,55512345,-;Out of memory: Killed process 123 (python3) total-vm:301024kB, anon-rss:200000kB, file-rss:0kB\n SUBSYSTEM=x\n"
	ofCgrp = "3,1022,55512346,-;Memory cgroup out of memory: Killed process 7 (a b) total-vm:1kB\n"
)

func TestRecords(t *testing.T) {
	for record, want := range map[string]Kill{
		global: {PID: 123, Name: "python3"}, ofCgrp: {PID: 7, Name: "a b"},
		"3,1,1,-;Out of memory: Killed process x (y)": {}, "no record": {}, "3,1,1,-;Out of memory: Killed process 5 y": {},
		"3,1,1,-;Out of memory: Killed process -5 (y)": {}, "": {},
	} {
		got, ok := parse([]byte(record))
		if !ok {
			got = Kill{}
		}
		if got != want {
			t.Errorf("%q: %+v, want %+v", record, got, want)
		}
	}
}

// A kill before a mark does not count after it, even if the log was not read before. The number of
// kept kills is limited.
func TestKillsSinceAMark(t *testing.T) {
	log := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mkfifo(log, 0o600); err != nil {
		t.Fatal(err)
	}
	l := Open(log)
	defer l.Close()
	w, err := os.OpenFile(log, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	kill := func(pid int) { // one record per read, as in the kernel
		t.Helper()
		if _, err := fmt.Fprintf(w, "3,1,1,-;Out of memory: Killed process %d (x)", pid); err != nil {
			t.Fatal(err)
		}
	}
	kill(7)
	before := l.Mark()
	if got := l.Since(before); len(got) != 0 {
		t.Errorf("a kill of before: %+v", got)
	}
	kill(8)
	if got := l.Since(before); len(got) != 1 || got[0].PID != 8 {
		t.Errorf("since the mark: %+v", got)
	}
	for i := range 100 {
		kill(100 + i)
		l.Mark()
	}
	if got := l.Since(before); len(got) != maxKills || got[maxKills-1].PID != 199 {
		t.Errorf("%d kills are kept", len(got))
	}
	if Open("/nonexistent").Since(0) != nil || Open("/nonexistent").Mark() != 0 {
		t.Error("no log has kills")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(global))
	f.Add([]byte(ofCgrp))
	f.Fuzz(func(t *testing.T, record []byte) {
		if k, ok := parse(record); ok && (k.PID <= 0 || len(k.Name) > oomline.MaxName) {
			t.Errorf("%+v", k)
		}
	})
}
