package harness

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// Machine is a machine for the tests only, with the settings for E2B clients of its daemon.
type Machine struct {
	Name, URL, Token string
	E2B              map[string]string // the output of `forkd e2b env`
}

// StartMachine starts a machine beside the machines of other tests, and stops it at the end of the
// test. It keeps the data disk, so images need not be sent again. Flags are further flags of
// `forkd machine start`, which win over those of this function.
func StartMachine(t *testing.T, suffix string, flags ...string) *Machine {
	t.Helper()
	m := &Machine{Name: kvmtest.Machine(t) + suffix}
	m.local(t, append([]string{"machine", "start", "--name", m.Name, "--memory", "4096", "--restart"}, flags...)...)
	t.Cleanup(func() { m.local(t, "machine", "stop", "--name", m.Name) })
	var status struct{ API, Dir string }
	decode(t, m.local(t, "--json", "machine", "status", "--name", m.Name), &status)
	token, err := os.ReadFile(filepath.Join(status.Dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	m.URL, m.Token = "http://"+status.API, strings.TrimSpace(string(token))
	decode(t, m.Forkd(t, "--json", "e2b", "env"), &m.E2B)
	m.clear(t)
	return m
}

// clear removes the leftovers of an earlier run from the data disk: running and paused sandboxes of
// an aborted run, and layers of templates, which the daemon keeps for later builds.
func (m *Machine) clear(t *testing.T) {
	t.Helper()
	for _, id := range strings.Fields(string(m.Forkd(t, "-q", "ps"))) {
		m.Forkd(t, "kill", id)
	}
	for _, tag := range strings.Fields(string(m.Forkd(t, "-q", "snapshot", "ls"))) {
		if strings.HasPrefix(tag, "e2b-") {
			m.Forkd(t, "snapshot", "rm", "--force", tag)
		}
	}
}

// Image builds an image and boots it, as a template with the name tag.
func (m *Machine) Image(t *testing.T, recipe, tag string) {
	t.Helper()
	m.Forkd(t, "image", "build", filepath.Join("..", "..", "recipes", recipe))
	if strings.Contains("\n"+string(m.Forkd(t, "-q", "snapshot", "ls")), "\n"+tag+"\n") {
		m.Forkd(t, "snapshot", "rm", tag) // it may have older programs
	}
	m.Forkd(t, "snapshot", "create", "--image", recipe, "--tag", tag)
}

// Forkd runs a command of the CLI on the machine's daemon.
func (m *Machine) Forkd(t *testing.T, args ...string) []byte {
	t.Helper()
	return m.local(t, append([]string{"--url", m.URL, "--token", m.Token}, args...)...)
}

// local runs a command of the CLI.
func (m *Machine) local(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "bin", "forkd"), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("forkd %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
}
