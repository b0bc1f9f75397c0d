package agent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agent/procgroup"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// killedSocket names the socket of an agent in a process of its own.
const killedSocket = "FORKD_TEST_KILLED_AGENT"

// TestMain makes this program that process when the variable is set. It ends only by SIGKILL.
func TestMain(m *testing.M) {
	if dir := os.Getenv(updatedAgent); dir != "" {
		os.Exit(runUpdatedAgent(dir, os.Args[1:]))
	}
	socket := os.Getenv(killedSocket)
	if socket == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, serveUntilKilled(socket))
	os.Exit(1)
}

func serveUntilKilled(socket string) error {
	a, err := agent.New(agent.Config{Root: filepath.Dir(socket), System: &fakeSystem{}, HooksDir: "/nowhere", CgroupMount: cgroupMount()})
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return a.Serve(context.Background(), l)
}

func cgroupMount() string {
	const hybrid = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(hybrid); err == nil {
		return hybrid
	}
	return "/sys/fs/cgroup"
}

// endMarked ends the processes of `sleep` with that argument, and returns their number.
func endMarked(mark string) (n int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		b, err := os.ReadFile(name)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && pid > 1 && string(b) == "sleep\x00"+mark+"\x00" {
			_ = unix.Kill(pid, unix.SIGKILL)
			n++
		}
	}
	return n
}

// An agent that is killed at a random moment, with commands and an interpreter running, leaves
// nothing behind that keeps the next one from working.
func TestEverythingWorksAfterAnAgentWasKilled(t *testing.T) {
	needPython(t)
	groups := procgroup.Open(cgroupMount(), "forkd-killed-test")
	confined := groups.Confined()
	if err := groups.Close(); err != nil {
		t.Fatal(err)
	}
	mark := fmt.Sprintf("300.%06d", os.Getpid())
	t.Cleanup(func() { endMarked(mark) })
	for range 4 {
		socket := filepath.Join(t.TempDir(), "s")
		p := exec.Command(os.Args[0])
		p.Env = append(os.Environ(), killedSocket+"="+socket)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		c := agentclient.New(func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		})
		useEverything(t, c)
		if left := endMarked(mark); confined && left > 0 {
			t.Errorf("%d processes of the killed agent are left", left)
		}
		running := make(chan error, 1)
		go func() {
			_, err := c.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"sh", "-c", "sleep " + mark + " & sleep " + mark}})
			running <- err
		}()
		time.Sleep(rand.N(200 * time.Millisecond)) // elapses: the moment of the kill
		if err := p.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = p.Wait()
		if err := <-running; err == nil {
			t.Error("a command of a killed agent has succeeded")
		}
		c.Close()
	}
}

func useEverything(t *testing.T, c *agentclient.Client) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // elapses: between two looks
		if _, err := c.Ping(t.Context()); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for range 3 {
		r, err := c.Exec(t.Context(), agentclient.ExecRequest{Args: []string{"sh", "-c", "cat; exit 3"}, Stdin: []byte("in")})
		if err != nil || strings.TrimSpace(string(r.Stdout)) != "in" || r.ShellCode != 3 {
			t.Errorf("exec: %+v, %v", r, err)
		}
	}
	r, err := c.Eval(t.Context(), &agentv1.EvalRequest{Code: "import subprocess\nsubprocess.check_output(['echo', 'sub'])"})
	if err != nil || r.GetResult() != `b'sub\n'` {
		t.Errorf("eval: %v, %v", r, err)
	}
}
