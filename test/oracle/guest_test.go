package oracle

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/forkd/forkd/test/harness"
)

// guest is a sandbox with its expected state.
type guest struct {
	id   string
	mark string // the last mark in its memory and on its disk; empty if there is none
	sum  string // of its data; empty if it has none

	mayFork      bool   // its guest may fork it
	origin, base string // tags of its origin and of its current base; empty if unknown
}

// load is a continuous stream of writes in a guest.
type load struct {
	name   string
	script string // body of the loop
}

var loads = []load{
	{"nothing", ""},
	{"slow", "dd if=/dev/urandom of=/dev/shm/noise bs=4k count=4 2>/dev/null; usleep 20000"},
	{"fast", "dd if=/dev/urandom of=/dev/shm/noise bs=64k count=32 conv=notrunc 2>/dev/null"},
	{"slow, and the disk", "dd if=/dev/urandom of=/dev/shm/noise bs=4k count=4 2>/dev/null; dd if=/dev/urandom of=/root/noise bs=4k count=8 conv=notrunc,fsync 2>/dev/null; usleep 20000"},
	{"the disk", "dd if=/dev/urandom of=/root/noise bs=64k count=16 conv=notrunc 2>/dev/null; sync"},
}

// put starts a load in a guest, and stops the one before.
func (l load) put(t *testing.T, d *harness.Daemon, id string) {
	t.Helper()
	script := "[ -f /dev/shm/writer ] && kill $(cat /dev/shm/writer) 2>/dev/null; rm -f /dev/shm/writer; "
	if l.script != "" {
		script += "setsid sh -c 'echo $$ > /dev/shm/writer; while :; do " + l.script + "; done' </dev/null >/dev/null 2>&1 & "
	}
	d.Shell(t, id, script+"true")
}

// leave stores a new mark in a guest.
func (g *guest) leave(t *testing.T, d *harness.Daemon, n int) {
	t.Helper()
	g.mark = strconv.Itoa(n)
	d.Shell(t, g.id, fmt.Sprintf("echo %s > /dev/shm/mark; echo %s > /root/mark", g.mark, g.mark))
}

// fill stores n KiB of private data in a guest.
func (g *guest) fill(t *testing.T, d *harness.Daemon, n int) {
	t.Helper()
	g.sum = d.Shell(t, g.id, fmt.Sprintf("dd if=/dev/urandom of=/dev/shm/data bs=1k count=%d 2>/dev/null; md5sum < /dev/shm/data", n))
}

// asks prints the guest's identity and state, for answers.
const asks = "hostname; cat /dev/shm/mark /root/mark 2>/dev/null; [ ! -f /dev/shm/data ] || md5sum < /dev/shm/data"

// answers checks that a guest has its own identity and its source's state.
func (g *guest) answers(t *testing.T, d *harness.Daemon) {
	t.Helper()
	want := g.id + "\n"
	if g.mark != "" {
		want += g.mark + "\n" + g.mark + "\n"
	}
	want += g.sum
	if got := d.Shell(t, g.id, asks); got != want {
		t.Errorf("%s says %q, want %q", g.id, strings.Fields(got), strings.Fields(want))
	}
}

// copyAs returns the expected state of a copy of the guest.
func (g *guest) copyAs(id, tag string) *guest {
	return &guest{id: id, mark: g.mark, sum: g.sum, origin: tag, base: tag}
}
