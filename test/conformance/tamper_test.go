package conformance

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Each change is detected by its canary, and by no canary whose data is intact. The canaries run on
// this host, not in a guest.
func TestCanariesNotice(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	cmd := exec.CommandContext(t.Context(), python, "guest/tamper.py", "guest/canary.py", filepath.Join(t.TempDir(), "canary"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a group with all of its children
	cmd.WaitDelay = time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err != nil {
		t.Fatalf("%v: %s", err, errs.Bytes())
	}
	n, changed := 0, []string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); n++ {
		var said struct {
			Changed, Column string
			Found           []string
		}
		if err := dec.Decode(&said); err != nil {
			t.Fatal(err)
		}
		if said.Column != "" && !slices.Contains(said.Found, said.Column) {
			t.Errorf("%s: %s did not notice", said.Changed, said.Column)
		}
		changed = append(changed, said.Column)
		for _, column := range said.Found {
			if !slices.Contains(changed, column) || !slices.Contains(columns, column) {
				t.Errorf("%s: %s complains of nothing", said.Changed, column)
			}
		}
	}
	if n != 18 {
		t.Errorf("%d things were changed", n)
	}
}
