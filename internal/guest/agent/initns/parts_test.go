package initns

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/guest/agent/identity"
)

func TestEnvironment(t *testing.T) {
	for _, tc := range []struct {
		name     string
		env      []string
		terminal bool
		want     []string
	}{
		{"a pipe", []string{"A=1"}, false, []string{"A=1", "container=forkd", "TERM=dumb"}},
		{"a terminal", []string{"TERM=xterm"}, true, []string{"TERM=xterm", "container=forkd"}},
		{"the image's terminal", []string{"TERM=xterm"}, false, []string{"TERM=xterm", "container=forkd"}},
		{"another container", []string{"container=docker", "containers=2"}, true, []string{"containers=2", "container=forkd"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := environment(tc.env, tc.terminal); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLines(t *testing.T) {
	for _, pieces := range [][]string{{"a\r\nb\r", "\nc\rd\r\n"}, {"a", "\r", "\n", "b\r\n", "c", "\rd\r", "\n"},
		{"a\r\r\nb\r", "\r", "\nc\r\rd\n"}} {
		var b bytes.Buffer
		l := &lines{to: &b}
		for _, p := range pieces {
			if n, err := l.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("wrote %d of %q: %v", n, p, err)
			}
		}
		if b.String() != "a\nb\nc\rd\n" {
			t.Errorf("%q became %q", pieces, b.String())
		}
	}
}

func TestOwnGroup(t *testing.T) {
	for text, want := range map[string]string{
		"0::/forkd/p5\n": "/forkd/p5", "1:cpu:/x\n0::/forkd/p5\n": "/forkd/p5", "0::/\n": "/", "1:cpu:/x\n": "/", "": "/",
		"0::/../../etc\n": "/etc",
	} {
		if got := ownGroup(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestMakeGroup(t *testing.T) {
	mount := t.TempDir()
	for name, text := range map[string]string{
		"cgroup.controllers": "cpu memory\n", "forkd/cgroup.controllers": "memory\n", "forkd/p5/cgroup.controllers": "pids\n",
		"forkd/p5/cgroup.procs": "12\n13\n", "cgroup.procs": "1\n",
	} {
		put(t, filepath.Join(mount, name), text)
	}
	f, err := makeGroup(mount, "/forkd/p5", 12)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := filepath.Join(mount, "forkd/p5/init-12"); f.Name() != want {
		t.Errorf("the group is %s, want %s", f.Name(), want)
	}
	// A file keeps the last write.
	for name, want := range map[string]string{
		"cgroup.subtree_control": "+memory", "forkd/cgroup.subtree_control": "+memory", "forkd/p5/cgroup.subtree_control": "+pids",
		"forkd/p5/beside/cgroup.procs": "13",
	} {
		if b, err := os.ReadFile(filepath.Join(mount, name)); string(b) != want {
			t.Errorf("%s has %q, want %q: %v", name, b, want, err)
		}
	}
	root, err := makeGroup(mount, "/", 12)
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	if _, err := os.Stat(filepath.Join(mount, "beside")); err == nil {
		t.Error("processes of the root group have moved")
	}
}

func TestPrepare(t *testing.T) {
	const other = "0123456789abcdef0123456789abcdef\n"
	for _, tc := range []struct {
		name, before string
		systemd      bool
		fills        bool
	}{
		{"an empty id", "", true, true},
		{"an unset id", "uninitialized\n", true, true},
		{"an id", other, true, false},
		{"another init", "", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			id, boot := filepath.Join(root, "etc/machine-id"), filepath.Join(root, identity.BootIDFile)
			put(t, id, tc.before)
			put(t, filepath.Join(root, identity.KernelBootID), "of the kernel\n")
			if err := os.MkdirAll(filepath.Dir(boot), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := prepare(root, tc.systemd); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(id)
			if err != nil || (string(b) != tc.before) != tc.fills || tc.fills && len(b) != len(other) {
				t.Errorf("the machine id is %q: %v", b, err)
			}
			if b, err := os.ReadFile(boot); string(b) != "of the kernel\n" {
				t.Errorf("the boot id is %q: %v", b, err)
			}
			put(t, boot, "of a clone\n")
			if err := prepare(root, tc.systemd); err != nil {
				t.Fatal(err)
			}
			if b, _ := os.ReadFile(boot); string(b) != "of a clone\n" {
				t.Errorf("the boot id of a clone became %q", b)
			}
		})
	}
	if err := prepare(t.TempDir(), true); err == nil || !strings.Contains(err.Error(), "boot id") {
		t.Errorf("without a boot id: %v", err)
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
