package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/leaf/linetime"
)

// Fork makes n children of a snapshot. Programs in the children may fork them.
func (d *Daemon) Fork(t testing.TB, tag string, n int) []api.SandboxInfo {
	t.Helper()
	res, err := d.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n, GuestFork: true})
	if err != nil {
		t.Fatalf("fork %s: %v", tag, err)
	}
	for _, sb := range res.Failed() {
		t.Fatalf("fork %s: child %d: %s", tag, sb.Index, sb.Error)
	}
	return res.Sandboxes
}

// Shell runs a script in a sandbox as its image's user and returns the output.
func (d *Daemon) Shell(t testing.TB, id, script string) string {
	t.Helper()
	r, err := d.Client.Exec(t.Context(), id,
		api.ExecRequest{Args: []string{"sh", "-c", script}, TimeoutSecs: patience.Seconds()})
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("%s: %q: %+v, %v", id, script, r, err)
	}
	return r.Stdout
}

// VMDir returns the run directory of a sandbox's VM, or an empty string if it has none.
func (d *Daemon) VMDir(id string) string {
	for _, name := range d.VMDirs() {
		dir := filepath.Join(d.Run, "vm", name)
		var record struct{ Info struct{ ID string } }
		if b, err := os.ReadFile(filepath.Join(dir, "sandbox.json")); err == nil && json.Unmarshal(b, &record) == nil &&
			record.Info.ID == id {
			return dir
		}
	}
	return ""
}

// kernelTrouble matches the messages of a guest kernel's fatal errors.
var kernelTrouble = regexp.MustCompile(`Kernel panic|Oops|Fatal exception|BUG:|general protection|Call Trace|soft lockup|I/O error`)

// Trouble returns the lines of the VMs' consoles with a guest kernel's fatal errors, and the lines
// after them.
func (d *Daemon) Trouble() []string {
	var out []string
	for _, name := range d.VMDirs() {
		b, err := os.ReadFile(filepath.Join(d.Run, "vm", name, "console.log"))
		if err != nil {
			continue // the VM has ended meanwhile
		}
		b = linetime.Plain(b)
		if at := kernelTrouble.FindIndex(b); at != nil {
			from := strings.LastIndexByte(string(b[:at[0]]), '\n') + 1
			out = append(out, name+": "+string(b[from:min(len(b), from+4<<10)]))
		}
	}
	return out
}
