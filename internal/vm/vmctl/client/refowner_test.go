package client

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/sys/hostproc"
)

// vmmLike starts a program with a file open at the descriptor of a VMM's console.
func vmmLike(t *testing.T, program, console string) Ref {
	t.Helper()
	f, err := os.OpenFile(console, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(program, "600")
	cmd.ExtraFiles = []*os.File{f, f, f, f} // FDKVM to FDConsole
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	start, err := hostproc.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return Ref{Dir: filepath.Dir(console), PID: cmd.Process.Pid, StartTime: start}
}

func TestWhoseProcessAReferenceNames(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "forkd-vmm")
	b, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, b, 0o755); err != nil {
		t.Fatal(err)
	}
	mine, other := filepath.Join(dir, "mine"), filepath.Join(dir, "other")
	for _, d := range []string{mine, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	one := vmmLike(t, binary, filepath.Join(mine, ConsoleLog))
	stranger := vmmLike(t, sleep, filepath.Join(other, ConsoleLog))
	if err := one.Check(binary); err != nil {
		t.Errorf("the VMM itself: %v", err)
	}
	elsewhere := filepath.Join(dir, "new", "forkd-vmm")
	if err := one.Check(elsewhere); err != nil {
		t.Errorf("after an upgrade to another place: %v", err)
	}
	if err := os.Remove(binary); err != nil {
		t.Fatal(err)
	}
	if err := one.Check(binary); err != nil {
		t.Errorf("after its program was removed: %v", err)
	}
	for _, c := range []struct {
		name string
		ref  Ref
		want string
	}{
		{"another program", stranger, "it runs " + sleep},
		{"the VMM of another directory", Ref{Dir: other, PID: one.PID, StartTime: one.StartTime}, "does not write the directory's"},
		{"a directory without a console", Ref{Dir: dir, PID: one.PID, StartTime: one.StartTime}, "has no " + ConsoleLog},
		{"this test", Ref{Dir: mine, PID: os.Getpid(), StartTime: must(hostproc.StartTime(os.Getpid()))}, "it runs "},
	} {
		if err := c.ref.Check(binary); !errors.Is(err, ErrNotOurs) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for name, ref := range map[string]Ref{"gone": {Dir: mine, PID: 1 << 30}, "its pid is another's now": {Dir: mine, PID: one.PID, StartTime: one.StartTime + 1}} {
		if err := ref.Check(binary); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
