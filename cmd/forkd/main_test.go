//go:build linux

package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/forkd/forkd/cmd/internal/clitest"
	"github.com/forkd/forkd/internal/api/httpapi/fakeengine"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/testing/statictest"
)

var update = flag.Bool("update", false, "rewrite what the scripts compare with")

func TestMain(m *testing.M) {
	if is, err := other(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	statictest.Main()
	testscript.Main(m, map[string]func(){"forkd": main})
}

func TestScripts(t *testing.T) {
	clitest.Program{
		Name: "forkd", Images: []string{"python-numpy", "broken"}, SetUp: setUp, Update: *update,
		Commands: map[string]func(*testscript.TestScript, bool, []string){"fake": changeEngine, "interrupt": interruptCommand,
			"press": pressCommand, "forward": forwardCommand, "machine": pretendMachine, "waitfor": waitForFile},
	}.Run(t)
}

type engineKey struct{}

func setUp(env *testscript.Env, d clitest.Daemon) error {
	env.Values[engineKey{}] = d.Engine
	d.Engine.Ports = guestPorts()
	env.Setenv("FORKD_URL", d.Unix)
	env.Setenv("TCP", d.TCP)
	env.Setenv("FORKD_MACHINE", "")
	env.Setenv("TOKEN", clitest.Token)
	env.Setenv("FORKD_TOKEN", "")
	return nil
}

// changeEngine makes changes no command can make: fake limit N, fake fail ID REASON, fake torn TAG,
// fake damaged TAG, fake changed TAG, fake parent TAG CHILD, fake adopt ID PARENT, fake branches N,
// fake finish TAG, fake adopt ID PARENT, fake ceiling none, fake agents.
func changeEngine(ts *testscript.TestScript, _ bool, args []string) {
	engine := ts.Value(engineKey{}).(*fakeengine.Engine)
	switch args[0] {
	case "limit":
		engine.Limit = int(args[1][0] - '0')
	case "branches":
		engine.BranchLimit = int(args[1][0] - '0')
	case "ceiling":
		engine.NoNetwork = args[1] == "none"
	case "adopt":
		fakeengine.Adopt(engine, args[1], args[2])
	case "finish":
		engine.Finish(args[1])
	case "fail":
		engine.Fail(args[1], args[2])
	case "torn":
		engine.AddSnapshot(sandbox.SnapshotInfo{Tag: args[1], Status: sandbox.SnapshotFailed, Warning: "memory: file is missing", CreatedAt: engine.Now})
	case "damaged":
		engine.AddSnapshot(sandbox.SnapshotInfo{Tag: args[1], Status: sandbox.SnapshotReady, Warning: "damaged", CreatedAt: engine.Now})
	case "changed":
		engine.AddSnapshot(sandbox.SnapshotInfo{Tag: args[1], Status: sandbox.SnapshotReady, Warning: "changed", CreatedAt: engine.Now})
	case "agents":
		for _, a := range []sandbox.Agent{{Version: "0.9"}, {Version: "0.2", Outdated: true, Replaceable: true},
			{Version: "0.1\x1b", Outdated: true}} {
			engine.AddSnapshot(sandbox.SnapshotInfo{Tag: "agent" + a.Version[2:3], Status: sandbox.SnapshotReady, Agent: &a, CreatedAt: engine.Now})
		}
	case "parent":
		engine.AddSnapshot(sandbox.SnapshotInfo{Tag: args[1], Status: sandbox.SnapshotReady, Dependents: []string{args[2]}, CreatedAt: engine.Now})
	default:
		ts.Fatalf("unknown: fake %s", args[0])
	}
}

// pressCommand runs forkd until its program prints a line, presses Ctrl-C once or twice, and expects an exit code:
// press TIMES CODE forkd ARG... The output is in the files out and err. Before the second one it waits for the first.
func pressCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 || args[2] != "forkd" {
		ts.Fatalf("usage: press TIMES CODE forkd ARG...")
	}
	times, err := strconv.Atoi(args[0])
	ts.Check(err)
	cmd, closeFiles := startForkd(ts, args[3:])
	defer closeFiles()
	for i := range times {
		waitForText(ts, []string{"out", "err"}[i], []string{"\n", "stopping with"}[i])
		ts.Check(cmd.Process.Signal(os.Interrupt))
	}
	_ = cmd.Wait()
	if code := fmt.Sprint(cmd.ProcessState.ExitCode()); code != args[1] {
		ts.Fatalf("exit code is %s, want %s; %s", code, args[1], ts.ReadFile("err"))
	}
}

// waitForText waits until a file of the script contains a text.
func waitForText(ts *testscript.TestScript, file, text string) {
	for end := time.Now().Add(time.Minute); !strings.Contains(ts.ReadFile(file), text); {
		if time.Now().After(end) {
			ts.Fatalf("%s has no %q: %s, %s", file, text, ts.ReadFile(file), ts.ReadFile("err"))
		}
		time.Sleep(5 * time.Millisecond) // elapses: the interval of looks at a file
	}
}

// startForkd starts forkd with its output in the files out and err.
func startForkd(ts *testscript.TestScript, args []string) (cmd *exec.Cmd, closeFiles func()) {
	ts.Check(ts.Exec("sh", "-c", "command -v forkd"))
	cmd = exec.Command(strings.TrimSpace(ts.ReadFile("stdout")), args...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "FORKD_URL", "FORKD_TOKEN", "XDG_RUNTIME_DIR", "PATH"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	out, err := os.Create(ts.MkAbs("out"))
	ts.Check(err)
	errs, err := os.Create(ts.MkAbs("err"))
	ts.Check(err)
	cmd.Stdout, cmd.Stderr = out, errs
	ts.Check(cmd.Start())
	return cmd, func() {
		out.Close()
		errs.Close()
	}
}

// interruptCommand runs forkd until a fork of it waits, presses Ctrl-C, and expects exit code 130:
// interrupt forkd ARG... The output is in the files out and err.
func interruptCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[0] != "forkd" {
		ts.Fatalf("usage: interrupt forkd ARG...")
	}
	engine := ts.Value(engineKey{}).(*fakeengine.Engine)
	cmd, closeFiles := startForkd(ts, args[1:])
	defer closeFiles()
	for end := time.Now().Add(time.Minute); engine.Waiting.Load() == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		ts.Fatalf("exit code is %d, want 130; %s", code, ts.ReadFile("err"))
	}
}
