package agent

import "testing"

func TestParseMeminfo(t *testing.T) {
	got := parseMeminfo("MemTotal:  1024 kB\nbad line\nX: y\nCached: 5 kB\n")
	if len(got) != 2 || got["MemTotal"] != 1024 || got["Cached"] != 5 {
		t.Errorf("got %v", got)
	}
}

func TestParseCPU(t *testing.T) {
	busy, total := parseCPU("cpu  10 0 20 60 10 0 0 0 5 5\ncpu0 1\n")
	if busy != 30 || total != 100 {
		t.Errorf("got %v of %v", busy, total)
	}
	for _, bad := range []string{"", "cpu", "cpu a b c d e", "intr 1 2 3 4 5 6"} {
		if b, n := parseCPU(bad); b != 0 || n != 0 {
			t.Errorf("%q gave %v of %v", bad, b, n)
		}
	}
}
