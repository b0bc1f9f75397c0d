package contract

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// Paths from a package of test/.
const (
	scenarioDir = "../../sdk/contract"
	openAPI     = "../../api/openapi.json"
)

// Daemon is a daemon that scenarios run over.
type Daemon struct {
	URL, Token string
	Parent     string // snapshot that scenarios fork; if it is missing, it is made of the image python-numpy
	Fake       bool   // its engine is the fake one
	Short      bool   // run the short scenarios only
}

// kind returns the value of Scenario.Only for the daemon.
func (d Daemon) kind() string {
	if d.Fake {
		return "fake"
	}
	return "real"
}

// clientUnderTest is one of the clients.
type clientUnderTest struct {
	name  string
	start func(t *testing.T, to Daemon) Driver
	// lacks lists the calls that the client cannot make.
	lacks []string
}

func clients() []clientUnderTest {
	return []clientUnderTest{
		{"rest", func(t *testing.T, to Daemon) Driver {
			ops, err := operations(openAPI)
			if err != nil {
				t.Fatal(err)
			}
			return rest{to.URL, to.Token, ops}
		}, []string{"agent.exec"}}, // the Connect protocol is not plain JSON
		{"go", func(t *testing.T, to Daemon) Driver {
			c, err := client.New(client.Options{URL: to.URL, Token: to.Token})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return goClient{c}
		}, []string{"snapshot-artifact", "snapshot-blob", "handover-sandbox"}}, // for daemons
		{"cli", func(t *testing.T, to Daemon) Driver { return cli{program(t), to.URL, to.Token} }, []string{
			"health", "ready", "metrics", "node", "get-image", "head-image", "import-image", "get-sandbox", "sandbox-memory",
			"ping", "events",
			"get-network", "set-network", "connect-port-get", "rotate-key", "revoke-key", "get-secret",
			"create-workspace", "list-workspaces", "get-workspace", "suspend-workspace", "resume-workspace", "delete-workspace",
			"export-snapshot", "import-snapshot", // they use files
			"snapshot-artifact", "snapshot-blob", "handover-sandbox", // for daemons
			"prune-snapshots", // system prune also removes other things
		}},
		{"python", func(t *testing.T, to Daemon) Driver {
			return driver(t, to, sdkPython(t), "-m", "forkd.contract")
		}, []string{"export-snapshot", "import-snapshot", "snapshot-artifact", "snapshot-blob",
			"handover-sandbox"}},
		{"typescript", func(t *testing.T, to Daemon) Driver {
			return driver(t, to, nodeWith(t), sdkTypeScript(t))
		}, []string{"export-snapshot", "import-snapshot", "snapshot-artifact", "snapshot-blob",
			"handover-sandbox"}},
	}
}

// sdkPython returns a Python with the SDK, which scripts/sdk-python.sh installs.
func sdkPython(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", ".cache", "sdk", "python", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is missing: scripts/sdk-python.sh installs it", path)
	}
	return path
}

// sdkTypeScript returns the driver of the TypeScript SDK, which scripts/sdk-typescript.sh builds.
func sdkTypeScript(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("..", "..", "sdk", "typescript")
	for _, path := range []string{"node_modules", "dist"} {
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
			t.Skipf("%s of the TypeScript SDK is missing: scripts/sdk-typescript.sh makes it", path)
		}
	}
	return filepath.Join(dir, "contract.mjs")
}

// nodeWith returns the program node: the host's, or the one that scripts/node.sh unpacks.
func nodeWith(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("node"); err == nil {
		return path
	}
	path, err := filepath.Abs(filepath.Join("..", "..", ".cache", "node", "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("there is no node, and %s is missing: scripts/sdk-typescript.sh makes it", path)
	}
	return path
}

// PythonSuite runs tests of the Python SDK over a daemon. only selects tests by name.
func PythonSuite(t *testing.T, to Daemon, file, only string) {
	cmd := exec.CommandContext(t.Context(), sdkPython(t), "-m", "pytest", "-q", "-p", "no:cacheprovider",
		filepath.Join("tests", file), "-k", only)
	cmd.Dir = filepath.Join("..", "..", "sdk", "python")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if to.URL != "" {
		cmd.Env = append(cmd.Env, "FORKD_URL="+to.URL, "FORKD_TOKEN="+to.Token, "FORKD_TEST_SNAPSHOT="+to.Parent)
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// TypeScriptSuite runs tests of the TypeScript SDK over a daemon.
func TypeScriptSuite(t *testing.T, to Daemon, files ...string) {
	sdkTypeScript(t)
	args := []string{"--test"}
	for _, f := range files {
		args = append(args, filepath.Join("test", f))
	}
	cmd := exec.CommandContext(t.Context(), nodeWith(t), args...)
	cmd.Dir = filepath.Join("..", "..", "sdk", "typescript")
	if to.URL != "" {
		cmd.Env = append(os.Environ(), "FORKD_URL="+to.URL, "FORKD_TOKEN="+to.Token, "FORKD_TEST_SNAPSHOT="+to.Parent)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// driver starts the driver of an SDK.
func driver(t *testing.T, to Daemon, name string, args ...string) Driver {
	t.Helper()
	p, err := startProcess(t.Context(), []string{"FORKD_URL=" + to.URL, "FORKD_TOKEN=" + to.Token}, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil && t.Context().Err() == nil {
			t.Errorf("the driver ended with %v", err)
		}
	})
	return p
}

// program builds forkd.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forkd")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/forkd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func scenarios(t *testing.T) []Scenario {
	t.Helper()
	all, err := Load(scenarioDir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Run runs the scenarios through every client.
func Run(t *testing.T, to Daemon) {
	for _, c := range clients() {
		t.Run(c.name, func(t *testing.T) { run(t, c, to) })
	}
}

func run(t *testing.T, c clientUnderTest, to Daemon) {
	prepare(t, to)
	d := c.start(t, to)
	for _, s := range scenarios(t) {
		if s.Only != "" && s.Only != to.kind() || to.Short && !s.Short {
			continue
		}
		t.Run(s.Name, func(t *testing.T) { s.run(t, d, c.lacks, to.Parent) })
	}
}

// prepare makes the parent, and removes leftovers of an earlier run.
func prepare(t *testing.T, to Daemon) {
	t.Helper()
	c, err := client.New(client.Options{URL: to.URL, Token: to.Token})
	if err != nil {
		t.Fatal(err)
	}
	clean := func() {
		_ = client.Workspaces{Client: c}.Delete(context.Background(), "contract-ws")
		for _, tag := range []string{"contract-branch", "contract-derived", "contract-expires", "contract-flat",
			"contract-place"} {
			_ = c.DeleteSnapshot(context.Background(), tag, client.DeleteOptions{Force: true})
		}
	}
	clean()
	t.Cleanup(clean)
	t.Cleanup(func() { c.Close() })
	if _, err := c.Snapshot(t.Context(), to.Parent); err == nil {
		return
	}
	req := api.CreateSnapshotRequest{Tag: to.Parent, Image: "python-numpy"}
	if _, err := c.CreateSnapshot(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
}

// run makes the calls of a scenario in order, and stops at the first that differs.
func (s Scenario) run(t *testing.T, d Driver, lacks []string, parent string) {
	values := saved{"snapshot": parent}
	defer s.end(d, values)
	for i, step := range s.Steps {
		until := time.Now().Add(time.Minute)
		for {
			err := step.run(t.Context(), d, values)
			if errors.Is(err, errNoCall) && slices.Contains(lacks, step.Call) {
				break
			}
			if err == nil {
				break
			}
			if !step.Retry || time.Now().After(until) {
				t.Fatalf("step %d, %s: %v", i+1, step.Call, err)
			}
			time.Sleep(200 * time.Millisecond) // elapses: polls a daemon of another process
		}
	}
}

// end kills the sandboxes of a scenario, which may have stopped early. Their names in Save begin
// with "sandbox".
func (s Scenario) end(d Driver, values saved) {
	for name, id := range values {
		if strings.HasPrefix(name, "sandbox") && fmt.Sprint(id) != "" {
			_, _ = d.Call(context.Background(), "kill-sandbox", map[string]any{"id": id})
		}
	}
}

func (s Step) run(ctx context.Context, d Driver, values saved) error {
	args, _ := values.fill(s.Args).(map[string]any)
	got, err := d.Call(ctx, s.Call, args)
	if s.Error != nil {
		return s.Error.match(err)
	}
	if err != nil {
		return err
	}
	for path, want := range s.Expect {
		v, err := find(got, path)
		if err != nil {
			return fmt.Errorf("%w, in the answer %s", err, brief(got))
		}
		if err := match(v, values.fill(want)); err != nil {
			return fmt.Errorf("%s %w, in the answer %s", path, err, brief(got))
		}
	}
	for name, path := range s.Save {
		if values[name], err = find(got, path); err != nil {
			return err
		}
	}
	return nil
}

// match compares a call's error with the expected one.
func (e ExpectedError) match(err error) error {
	if errors.Is(err, errNoCall) {
		return err
	}
	var f *Failure
	ok := errors.As(err, &f)
	if !ok {
		return fmt.Errorf("ended with %v, want error %s", err, e.Code)
	}
	if f.Code != e.Code || e.Reason != "" && f.Reason != e.Reason {
		return fmt.Errorf("failed with %s %s (%s), want %s %s", f.Code, f.Reason, f.Text, e.Code, e.Reason)
	}
	if f.Class != "" && f.Class != className(f.Code) {
		return fmt.Errorf("failed with class %s, want %s", f.Class, className(f.Code))
	}
	if f.Status != 0 && f.Status != api.Code(f.Code).Status() && f.Status != http.StatusOK {
		return fmt.Errorf("failed with status %d, want %d", f.Status, api.Code(f.Code).Status())
	}
	return nil
}

// className returns the name of the SDKs' class for errors with a code.
func className(code string) string {
	if code == "timeout" {
		return "GuestTimeoutError"
	}
	var b strings.Builder
	for _, word := range strings.Split(code, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String() + "Error"
}
