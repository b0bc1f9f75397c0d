package procgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// killRounds limits the walk over a tree that forks as fast as it is killed.
const killRounds = 20

// KillTree kills pid, its descendants and the members of its session. It stops the processes first,
// so the tree cannot grow during the walk.
func KillTree(pid int) {
	seen := map[int]bool{}
	for range killRounds {
		found := tree(pid)
		grew := false
		for _, p := range found {
			if !seen[p] {
				seen[p], grew = true, true
				_ = unix.Kill(p, unix.SIGSTOP)
			}
		}
		if !grew {
			break
		}
	}
	for p := range seen {
		_ = unix.Kill(p, unix.SIGKILL)
	}
}

// KillSession kills the members of a session after its leader has ended.
func KillSession(sid int) {
	for _, s := range processes() {
		// The number is not reused for a new process while a member lives.
		if s.session == sid && s.pid != sid {
			_ = unix.Kill(s.pid, unix.SIGKILL)
		}
	}
}

type stat struct{ pid, ppid, session int }

func tree(root int) []int {
	all := processes()
	in := map[int]bool{root: true}
	found := []int{root}
	for grew := true; grew; {
		grew = false
		for _, s := range all {
			if !in[s.pid] && (in[s.ppid] || in[s.session]) && s.pid != os.Getpid() {
				in[s.pid], grew = true, true
				found = append(found, s.pid)
			}
		}
	}
	return found
}

func processes() []stat {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var all []stat
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it ended meanwhile
		}
		if s, ok := parseStat(b); ok {
			all = append(all, s)
		}
	}
	return all
}

// parseStat reads pid, parent and session from a /proc/PID/stat line. The name in parentheses may
// contain parentheses, so the last one ends it.
func parseStat(b []byte) (stat, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return stat{}, false
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil {
		return stat{}, false
	}
	f := bytes.Fields(b[end+1:]) // state ppid pgrp session …
	if len(f) < 4 {
		return stat{}, false
	}
	ppid, err1 := strconv.Atoi(string(f[1]))
	session, err2 := strconv.Atoi(string(f[3]))
	return stat{pid, ppid, session}, err1 == nil && err2 == nil
}
