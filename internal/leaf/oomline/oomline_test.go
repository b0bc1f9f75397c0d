package oomline

import "testing"

func TestLines(t *testing.T) {
	for line, want := range map[string]struct {
		pid  int
		name string
	}{
		"[    7.123] Out of memory: Killed process 123 (python3) total-vm:301024kB": {123, "python3"},
		"Memory cgroup out of memory: Killed process 7 (a b) total-vm:1kB":          {7, "a b"},
		"Out of memory: Killed process x (y)":                                       {},
		"Out of memory: Killed process -5 (y)":                                      {},
		"Out of memory: Killed process 5 y":                                         {},
		"no kill":                                                                   {},
		"":                                                                          {},
	} {
		if pid, name, ok := Parse([]byte(line)); pid != want.pid || name != want.name || ok != (want.pid > 0) {
			t.Errorf("%q: %d, %q, %v, want %+v", line, pid, name, ok, want)
		}
	}
}
