package clocksync

import (
	"strconv"
	"testing"
	"time"
)

// guest has clocks controlled by a test.
type guest struct {
	wall time.Time
	boot time.Duration
	sets int
}

func (g *guest) SetClock(t time.Time) error { g.wall = t; g.sets++; return nil }

func (g *guest) pass(d time.Duration) { g.wall, g.boot = g.wall.Add(d), g.boot+d }

func TestTheClock(t *testing.T) {
	const second = time.Second
	start := time.Unix(1_800_000_000, 0)
	g := &guest{wall: start, boot: 5 * second}
	k := &Keeper{Clocks: g, Log: t.Logf, Read: func() (time.Time, time.Duration) { return g.wall, g.boot }}
	host := start
	check := func(what string, sets int, wall time.Time) {
		t.Helper()
		k.Check(strconv.FormatInt(host.UnixNano(), 10))
		if g.sets != sets || !g.wall.Equal(wall) {
			t.Errorf("%s: set %d times, want %d; it is %s, want %s", what, g.sets, sets, g.wall, wall)
		}
	}
	check("right", 0, start)
	host = host.Add(50 * time.Millisecond)
	check("a little behind", 0, start)
	host = start.Add(-second)
	check("ahead, or an old request", 0, start)
	host = start.Add(2200 * time.Millisecond) // a step was skipped
	check("behind", 1, host)
	g.pass(second)
	host = host.Add(second)
	check("right again", 1, host)

	g.wall = g.wall.Add(-time.Hour) // set by a program
	mine := g.wall
	check("a program's clock", 1, mine)
	g.pass(second)
	host = host.Add(second)
	check("still a program's", 1, mine.Add(second))
	k.Taken()
	check("after an identity", 2, host)

	for _, bad := range []string{"", "x", "9223372036854775807", "-1"} {
		k.Check(bad)
	}
	if g.sets != 2 {
		t.Errorf("bad headers set the clock %d times", g.sets-2)
	}
}
