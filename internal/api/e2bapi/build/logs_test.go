package build

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestLogsOfAnOwnerShareALimit(t *testing.T) {
	const each = 1 << 20
	g := newLogs(time.Now, each)
	quiet := g.begin("b", "quiet")
	quiet.output("1", "here")
	g.end(quiet)
	for i := range 10 {
		l := g.begin("a", fmt.Sprint(i))
		for range 2 * each / maxLine {
			l.output("1", strings.Repeat("x", maxLine))
		}
		l.say(LevelInfo, "1", "Build finished")
		if all := l.from(0, maxEntries); all[len(all)-1].Message != "Build finished" {
			t.Errorf("build %d: the last entry is %.40q", i, all[len(all)-1].Message)
		}
		g.end(l)
		if n := g.bytes["a"]; n > each {
			t.Fatalf("logs of an owner have %d bytes, want at most %d", n, each)
		}
	}
	if len(g.get("quiet").from(0, 10)) != 1 {
		t.Error("another owner's log is gone")
	}
}

func TestTheMostLogsAreDroppedFirst(t *testing.T) {
	g := newLogs(time.Now, 1<<20)
	g.end(g.begin("b", "quiet"))
	for i := range 2 * keepLogs {
		g.end(g.begin("a", fmt.Sprint(i)))
	}
	if g.get("quiet") == nil || len(g.all) != keepLogs || len(g.ended) != keepLogs {
		t.Errorf("%d logs are kept, another owner's: %t", len(g.all), g.get("quiet") != nil)
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n"), uint8(1))
	f.Add(bytes.Repeat([]byte("x\n"), 9000), uint8(200))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		var got []byte
		l := lines{to: func(s string) {
			if s == "" || len(s) > maxLine || strings.ContainsAny(s, "\r\n") {
				t.Fatalf("a line of %d bytes", len(s))
			}
			got = append(got, s...)
		}}
		for c := b; len(c) > 0; {
			n := min(len(c), int(size)+1)
			l.add(c[:n])
			c = c[n:]
		}
		l.end()
		want := bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\n"), nil), []byte("\r"), nil)
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d came out", len(got), len(want))
		}
	})
}
