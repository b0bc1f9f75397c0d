// Package dockerfile builds snapshots from Dockerfiles against a daemon with real VMs, with the
// command line, and runs them.
package dockerfile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/test/harness"
)

// files is a build context that a test may change.
type files struct {
	t    *testing.T
	m    *harness.Machine
	dir  string
	base string
}

// Suite builds and runs snapshots. base is an image of the daemon with a shell, tar and an account
// user.
func Suite(t *testing.T, m *harness.Machine, base string) {
	f := newFiles(t, m, base)
	defer f.clean()
	t.Run("build, run, build again", func(t *testing.T) { f.with(t).twice() })
	t.Run("a failure", func(t *testing.T) { f.with(t).failure() })
}

// Export builds a snapshot, exports it as an OCI image, and makes an image of the daemon of it
// again. It returns the snapshot's container image in Docker's format: its name is
// dockerfile-test:latest, and its command prints "hello v1". The file is in a directory of the test.
// Each export takes more than a minute on an emulated CPU.
func Export(t *testing.T, m *harness.Machine, base string) (file string) {
	f := newFiles(t, m, base)
	defer f.clean()
	f.build()
	f.export()
	file = filepath.Join(t.TempDir(), "docker.tar")
	f.m.Forkd(t, "image", "export", "dockerfile-test", file)
	return file
}

func newFiles(t *testing.T, m *harness.Machine, base string) files {
	t.Helper()
	f := files{t, m, t.TempDir(), base}
	if err := os.CopyFS(f.dir, os.DirFS("../dockerfile/testdata/app")); err != nil {
		t.Fatal(err)
	}
	f.write("part", "first\n")
	f.write("secret.ignored", "s")
	f.write("files.tar.gz", archive(t, "inside", "from an archive\n"))
	return f
}

func (f files) with(t *testing.T) files {
	f.t = t
	return f
}

func (f files) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// archive returns a compressed archive with one file.
func archive(t *testing.T, name, content string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	z.Close()
	return b.String()
}

// forkd runs a command and returns its output, its notes and its exit code.
func (f files) forkd(args ...string) (out, notes string, code int) {
	f.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(f.t.Context(), filepath.Join("..", "..", "bin", "forkd"),
		append([]string{"--url", f.m.URL, "--token", f.m.Token}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		f.t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

func (f files) build(args ...string) (notes string) {
	f.t.Helper()
	out, notes, code := f.forkd(append([]string{"image", "build", "-t", "dockerfile-test", "--net", "none",
		"--build-arg", "BASE=" + f.base, f.dir}, args...)...)
	if code != 0 || out != "dockerfile-test\n" {
		f.t.Fatalf("the build ends with %d: %s%s", code, out, notes)
	}
	return notes
}

// sandboxes returns the IDs of running sandboxes.
func (f files) sandboxes() string { return string(f.m.Forkd(f.t, "-q", "ps")) }

func (f files) twice() {
	before := f.sandboxes()
	f.build()
	const want = "user\n/srv\nhello v1\nfirst\nroot\nyes one two\nfrom an archive\n"
	if out, notes, code := f.forkd("run", "dockerfile-test"); out != want || code != 0 {
		f.t.Errorf("it runs %q, want %q; %s, exit code %d", out, want, notes, code)
	}
	out, _, _ := f.forkd("run", "dockerfile-test", "--", "sh", "-c", "echo $GREETING-$MORE; ls -A /src 2>&1")
	if !strings.HasPrefix(out, "-yes\n") || strings.Contains(out, "out") {
		f.t.Errorf("the other stage is in the snapshot: %q", out)
	}
	notes := f.build()
	if cached, all := strings.Count(notes, "cached"), strings.Count(notes, "/9] "); cached != 9 || all != 9 {
		f.t.Errorf("of %d steps %d are cached: %s", all, cached, notes)
	}
	f.write("part", "second\n")
	f.build("--build-arg", "VERSION=2")
	if out, _, _ := f.forkd("run", "dockerfile-test"); !strings.Contains(out, "hello v2\nsecond\n") {
		f.t.Errorf("after a change it runs %q", out)
	}
	if after := f.sandboxes(); after != before {
		f.t.Errorf("sandboxes are left: %q, before %q", after, before)
	}
}

func (f files) failure() {
	f.write("Broken", "FROM "+f.base+"\nENV A=1\nRUN echo some output && exit 5\n")
	before := f.sandboxes()
	out, notes, code := f.forkd("image", "build", "-f", filepath.Join(f.dir, "Broken"), "-t", "dockerfile-broken", f.dir)
	if code != 2 || out != "" || !strings.Contains(notes, "some output") ||
		!strings.Contains(notes, "Broken:3: RUN echo some output && exit 5: the command ended with exit code 5") {
		f.t.Errorf("exit code %d, %q, %s", code, out, notes)
	}
	if strings.Contains(string(f.m.Forkd(f.t, "-q", "snapshot", "ls")), "dockerfile-broken") {
		f.t.Error("a failed build leaves a snapshot")
	}
	if after := f.sandboxes(); after != before {
		f.t.Errorf("sandboxes are left: %q, before %q", after, before)
	}
}

// export writes the snapshot as a container image, and makes a forkd image of it again.
func (f files) export() {
	file := filepath.Join(f.dir, "image.tar")
	if out, notes, code := f.forkd("image", "export", "--format", "oci", "dockerfile-test", file); code != 0 {
		f.t.Fatalf("exit code %d: %s%s", code, out, notes)
	}
	defer os.Remove(file)
	if out, notes, code := f.forkd("image", "import", "--name", "dockerfile-again", file); code != 0 {
		f.t.Fatalf("exit code %d: %s%s", code, out, notes)
	}
	var info struct {
		Container struct {
			Entrypoint, Cmd []string
			User, Workdir   string
			Env             map[string]string
		}
	}
	if err := json.Unmarshal(f.m.Forkd(f.t, "--json", "image", "inspect", "dockerfile-again"), &info); err != nil {
		f.t.Fatal(err)
	}
	c := info.Container
	if strings.Join(c.Entrypoint, " ") != "start" || strings.Join(c.Cmd, " ") != "one two" || c.User != "user" ||
		c.Workdir != "/srv" || c.Env["MORE"] != "yes" {
		f.t.Errorf("the image is %+v", c)
	}
	out, notes, code := f.forkd("run", "dockerfile-again")
	if !strings.HasPrefix(out, "user\n/srv\nhello v1\nfirst\nroot\nyes one two\n") {
		f.t.Errorf("it runs %q; %s, exit code %d", out, notes, code)
	}
}

// clean removes what the builds left in the daemon.
func (f files) clean() {
	for _, tag := range strings.Fields(string(f.m.Forkd(f.t, "-q", "snapshot", "ls"))) {
		ours := []string{"build-", "dockerfile-", "run-dockerfile-"}
		if slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(tag, prefix) }) {
			f.forkd("snapshot", "rm", "--cascade", tag)
		}
	}
	f.forkd("image", "rm", "dockerfile-again")
}
