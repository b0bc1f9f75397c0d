//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/cmd/internal/clitest"
	"github.com/forkd/forkd/internal/sys/hostproc"
)

// pretendMachine makes a running machine of that name, with a sleeping process and the script's
// daemon: machine NAME.
func pretendMachine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: machine NAME")
	}
	u, err := url.Parse(ts.Getenv("TCP"))
	ts.Check(err)
	cmd := exec.Command("sleep", "600")
	ts.Check(cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	start, err := hostproc.StartTime(cmd.Process.Pid)
	ts.Check(err)
	state := fmt.Sprintf(`{"pid":%d,"start_time":%d,"boot_id":%q,"api_port":%[4]s,"agent_port":%[4]s,`+
		`"spec":{"cpus":1,"memory_mib":2048,"disk_gib":2}}`, cmd.Process.Pid, start, hostproc.BootID(), u.Port())
	dir := filepath.Join(ts.Getenv("HOME"), ".local", "share", "forkd", "machine", args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(os.WriteFile(filepath.Join(dir, "state.json"), []byte(state), 0o600))
	ts.Check(os.WriteFile(filepath.Join(dir, "token"), []byte(clitest.Token), 0o600))
}

func TestAnAnswerAboutSandboxesOfAMachine(t *testing.T) {
	refused := errors.New("refused")
	for _, row := range []struct {
		answer          string
		pausable, pause bool
		err             error
	}{
		{"y\n", true, false, nil}, {"YES\n", false, false, nil}, {"p\n", true, true, nil}, {"p\n", false, false, refused},
		{"", true, false, refused}, {"n\n", true, false, refused}, {"\n", true, false, refused},
	} {
		e := &machineEnd{}
		if err := e.answered(row.answer, row.pausable, refused); err != row.err || e.pause != row.pause {
			t.Errorf("%q: %v, pause %v", row.answer, err, e.pause)
		}
	}
}

func TestCommandsInAdviceNameTheMachine(t *testing.T) {
	for hint, want := range map[string]string{
		"`forkd ps`":            "`forkd ps --machine-name ci`",
		"`forkd snapshot ls`":   "`forkd snapshot ls --machine-name ci`",
		"`forkd snapshot rm x`": "`forkd snapshot rm --machine-name ci x`",
		"make it: `forkd exec sb -- mkdir x`, or `forkd machine start --restart`": "make it: " +
			"`forkd exec --machine-name ci sb -- mkdir x`, or `forkd machine start --name ci --restart`",
		"`forkd serve --pool 1`, `forkd x --help`, `forkd machine exec --name ci -- ls`": "`forkd serve --pool 1`, " +
			"`forkd x --help`, `forkd machine exec --name ci -- ls`",
		"--yes": "--yes",
	} {
		if got := inMachine("ci", hint); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := inMachine("", hint); got != hint {
			t.Errorf("no machine is named: %q", got)
		}
	}
}

func TestADaemonThatDoesNotServeLeavesNoDirectories(t *testing.T) {
	dir := t.TempDir()
	data, run, kept := filepath.Join(dir, "a", "b", "data"), filepath.Join(dir, "a", "run"), filepath.Join(dir, "kept")
	if err := os.Mkdir(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	r := missing(data, run, kept)
	for _, d := range []string{data, run} {
		if err := errors.Join(os.MkdirAll(d, 0o700), os.WriteFile(d+"/lock", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := os.Open(run + "/lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	r.remove()
	if !isMissing(filepath.Join(dir, "a", "b")) || isMissing(run) || isMissing(kept) {
		t.Error("it left its own, or removed what another daemon has")
	}
	lock.Close()
	r.remove()
	if !isMissing(filepath.Join(dir, "a")) {
		t.Error("it left its own")
	}
}
