// Package oomline reads the line with which a Linux kernel reports the kill of a process for lack
// of memory. It owns no log: the agent reads the kernel's log, the daemon a guest's console. Beware:
// root in the guest can write such a line, so a kill is a text for people and no evidence.
package oomline

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// Killed begins the text about a process killed by the guest's kernel.
const Killed = "killed by the guest's kernel: "

// Text describes a kill to people.
func Text(pid int, name string, at time.Time) string {
	return fmt.Sprintf("%sout of memory (process %d, %s, %s)", Killed, pid, name, at.UTC().Format(time.RFC3339))
}

// MaxName limits a process's name, in bytes.
const MaxName = 64

// mark precedes the process id in the text of a kill (mm/oom_kill.c). It follows "Out of memory" or
// "Memory cgroup out of memory".
var mark = []byte("ut of memory: Killed process ")

// Parse returns the process id and the name in a line of a kernel's log. ok is false if the line
// reports no kill.
func Parse(line []byte) (pid int, name string, ok bool) {
	_, rest, ok := bytes.Cut(line, mark)
	if !ok {
		return 0, "", false
	}
	id, rest, ok := bytes.Cut(rest, []byte(" ("))
	if !ok {
		return 0, "", false
	}
	if pid, _ = strconv.Atoi(string(id)); pid <= 0 {
		return 0, "", false
	}
	word, _, ok := bytes.Cut(rest, []byte(")"))
	if !ok {
		return 0, "", false
	}
	return pid, string(word[:min(len(word), MaxName)]), true
}
