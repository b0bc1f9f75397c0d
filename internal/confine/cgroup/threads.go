package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Threads returns the number of threads, and the limit, for the group closest to its limit: pids.current and
// pids.max of dir and of all groups around it. bounded is false if no group has a limit.
func Threads(dir string) (used, limit int64, bounded bool) {
	for ; isGroup(dir); dir = filepath.Dir(dir) {
		most, ok := numberIn(dir, "pids.max")
		now, counted := numberIn(dir, "pids.current")
		if ok && counted && (!bounded || most-now < limit-used) {
			used, limit, bounded = now, most, true
		}
	}
	return used, limit, bounded
}

// Around returns the group in which this process creates groups, or would. It returns an empty string if it
// cannot.
func Around() string {
	p, err := findPlace()
	if err != nil {
		return ""
	}
	return p.dir
}

func isGroup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

// numberIn parses a file with one number. It returns false for another word, such as max.
func numberIn(dir, file string) (int64, bool) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
