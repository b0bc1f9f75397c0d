package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// TestProgramsMayOpenManyFiles checks the limits that servers and package managers expect, for
// every way to run a program in a fork: as root, as a user, and in the warm interpreter.
func TestProgramsMayOpenManyFiles(t *testing.T) {
	d := shared(t)
	sb := d.fork(1)[0]
	const limits = "ulimit -Sn; ulimit -Hn"
	const want = "65536 1048576"
	if got := strings.Join(strings.Fields(d.sh(sb.ID, limits)), " "); got != want {
		t.Errorf("a program of root has %s, want %s", got, want)
	}
	r, err := d.c.Exec(t.Context(), sb.ID, api.ExecRequest{Args: []string{"sh", "-c", limits}, User: "user"})
	if got := strings.Join(strings.Fields(r.Stdout), " "); err != nil || got != want {
		t.Errorf("a program of a user has %s, %v, want %s", got, err, want)
	}
	if got := d.eval(sb.ID, "import resource\nresource.getrlimit(resource.RLIMIT_NOFILE)"); got != "(65536, 1048576)" {
		t.Errorf("the interpreter has %s", got)
	}
	if got := d.eval(sb.ID, "fs = [open('/dev/null') for _ in range(10000)]\nlen(fs)"); got != "10000" {
		t.Errorf("it opens %s files", got)
	}
	const sysctls = "cat /proc/sys/fs/inotify/max_user_watches /proc/sys/fs/inotify/max_user_instances"
	if got := strings.Join(strings.Fields(d.sh(sb.ID, sysctls)), " "); got != "524288 1024" {
		t.Errorf("inotify has %s", got)
	}
	if got := d.sh(sb.ID, "for f in /dev/fuse /dev/net/tun; do [ ! -e $f ] || stat -c %a $f; done"); strings.Contains(got, "600") {
		t.Errorf("devices have modes %s, want 666", got)
	}
}

// TestAProgramThatTheGuestsKernelKills makes a fork's kernel kill a program, and a program of a
// shell, for lack of memory.
func TestAProgramThatTheGuestsKernelKills(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	id := d.fork(1)[0].ID
	takes := []string{"python3", "-c", "b = []\nwhile True: b.append(bytearray(1 << 20))"}
	began := time.Now()
	r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: takes})
	t.Logf("killed after %s", time.Since(began).Round(time.Millisecond))
	if err != nil || r.ExitCode != 137 || !strings.HasPrefix(r.KilledBy, "killed by the guest's kernel: out of memory (process ") ||
		!strings.Contains(r.KilledBy, ", python3, ") {
		t.Errorf("exit code %d, %q, %q, %v", r.ExitCode, r.KilledBy, r.Stderr, err)
	}
	code, _, errs := d.cli("exec", id, "--", "sh", "-c", "\"$@\"; exit $?", "sh", takes[0], takes[1], takes[2])
	if code != 137 || !strings.Contains(errs, "out of memory (process ") {
		t.Errorf("forkd exec: exit code %d, %s", code, errs)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		sb, err := d.c.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if o := sb.LastOOM; o != nil && o.Process == "python3" && o.PID > 1 && time.Since(o.At).Abs() < 10*time.Minute {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the sandbox's last kill is %+v", sb.LastOOM)
		}
	}
	if r, err := d.c.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", "kill -9 $$"}}); err != nil || r.KilledBy != "" {
		t.Errorf("a program that was killed otherwise: %+v, %v", r, err)
	}
}

// TestAClockThatFellBehind makes the daemon skip a clock step, and a program set the clock.
func TestAClockThatFellBehind(t *testing.T) {
	d := shared(t)
	id := d.forkOf(d.small(), 1)[0].ID
	off := func() time.Duration {
		t.Helper()
		before := time.Now()
		s, err := strconv.ParseInt(strings.TrimSpace(d.sh(id, "date +%s")), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return before.Truncate(time.Second).Sub(time.Unix(s, 0))
	}
	if by := off(); by > time.Second {
		t.Errorf("after the fork it is %s behind", by)
	}
	d.sh(id, "date -s @1700000000") // the agent does not correct a program's change
	if by := off(); by < 24*time.Hour {
		t.Errorf("the clock that a program has set was set again: it is %s behind", by)
	}
	d.pause(id)
	d.resume(id) // a new identity sets the clock to the host's
	if by := off(); by > time.Second {
		t.Errorf("after a resume it is %s behind", by)
	}
}
