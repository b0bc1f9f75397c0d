//go:build linux

package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/images/kernelpkg"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// buildVariable is in the environment of a build and of all its tools, with the folder of the test.
const buildVariable = "FORKD_TEST_BUILD"

const killedRecipe = "name: killed\nsuite: bookworm\npackages: [python3]\npip: [six]\ndisk: 64MiB\n"

// builder builds an image by the program forkd, again and again.
type builder struct {
	t    *testing.T
	dir  string
	bin  string // the folder of forkd
	path string // PATH; empty: the host's own
	uid  int    // of its processes
}

// openDir is a folder that other users can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "build")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// programs is a folder with forkd and an agent.
func programs(t *testing.T) string {
	t.Helper()
	dir := openDir(t)
	self, err := os.ReadFile(os.Args[0])
	for name, data := range map[string][]byte{"forkd": self, "forkd-agent": []byte("\x7fELF agent")} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func newBuilder(t *testing.T, bin string, uid int, recipe string) *builder {
	t.Helper()
	b := &builder{t: t, dir: openDir(t), bin: bin, uid: uid}
	var err error
	for _, name := range []string{"tools", "home", "tmp", "recipe"} {
		err = errors.Join(err, os.Mkdir(b.at(name), 0o755))
	}
	b.put("recipe/recipe.yaml", []byte(recipe), 0o644)
	b.put("steps", nil, 0o644)
	b.put("stop", []byte("0"), 0o644)
	for _, name := range []string{"", "home", "tmp", "steps", "stop"} {
		err = errors.Join(err, os.Chown(b.at(name), uid, -1))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *builder) at(name string) string { return filepath.Join(b.dir, name) }

func (b *builder) put(name string, data []byte, mode fs.FileMode) {
	b.t.Helper()
	if err := os.WriteFile(b.at(name), data, mode); err != nil {
		b.t.Fatal(err)
	}
}

// fakeTools has the builds run a script in place of the host's tools.
func (b *builder) fakeTools() {
	b.t.Helper()
	script, err := os.ReadFile("testdata/buildtools/tool.sh")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range []string{"apt-get", "apt-cache", "mmdebstrap", "mkfs.erofs", "mke2fs", "newuidmap", "python3", "chroot"} {
		b.put("tools/"+name, script, 0o755)
	}
	b.put("kernel.deb", tinyKernel(b.t), 0o644)
	b.path = b.at("tools") + ":" + os.Getenv("PATH")
}

// command is a build that has not started.
func (b *builder) command() *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), filepath.Join(b.bin, "forkd"), "image", "build", "--local", b.at("recipe"))
	cmd.Env = []string{buildVariable + "=" + b.dir, "HOME=" + b.at("home"), "TMPDIR=" + b.at("tmp"), "PATH=" + os.Getenv("PATH")}
	if b.path != "" {
		cmd.Env = append(cmd.Env, "PATH="+b.path)
	}
	cmd.Dir = b.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if b.uid != os.Getuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.uid)} // #nosec G115 -- small
	}
	return cmd
}

// reset forgets the steps of the last build, and stops the next one at a step of its tools, or at no step if it is 0.
func (b *builder) reset(stop int) {
	b.t.Helper()
	os.Remove(b.at("reached"))
	b.put("steps", nil, 0o644)
	b.put("stop", []byte(strconv.Itoa(stop)), 0o644)
}

// builds runs a whole build, and returns the image's digest.
func (b *builder) builds() string {
	b.t.Helper()
	b.reset(0)
	cmd := b.command()
	var notes bytes.Buffer
	cmd.Stderr = &notes
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("%v: %s", err, notes.String())
	}
	return string(out)
}

// steps returns the steps of the last build's tools.
func (b *builder) steps() []string {
	b.t.Helper()
	text, err := os.ReadFile(b.at("steps"))
	if err != nil {
		b.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// killedAtTool starts a build and kills it when its tools reach a step.
func (b *builder) killedAtTool(step int) {
	b.t.Helper()
	b.reset(step)
	cmd := b.command()
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(b.at("reached")); err == nil {
			break
		}
		if time.Now().After(end) {
			b.t.Fatalf("the tools have reached only %q", b.steps())
		}
	}
	b.kill(cmd)
}

// killedAtNote starts a build and kills it when it reports the step of a number, and returns the report.
func (b *builder) killedAtNote(n int, late time.Duration) (note string, ended bool) {
	b.t.Helper()
	b.reset(0)
	cmd := b.command()
	r, err := cmd.StderrPipe()
	if err = errors.Join(err, cmd.Start()); err != nil {
		b.t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	for range n {
		if !lines.Scan() {
			ended = true
			break
		}
		note = lines.Text()
	}
	time.Sleep(late) // elapses: the build works on the step
	b.kill(cmd)
	return note, ended
}

// kill ends the program, and not its tools.
func (b *builder) kill(cmd *exec.Cmd) {
	b.t.Helper()
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		b.t.Fatal(err)
	}
	_ = cmd.Wait()
}

// nothingRuns checks that a killed build has left no process, mount or loop device, and only whole images.
func (b *builder) nothingRuns() {
	b.t.Helper()
	var left []string
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if left = b.processes(); len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, p := range left {
		b.t.Errorf("process %s still runs", p)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), b.dir) {
		b.t.Errorf("mounts: %v\n%s", err, mounts)
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, path := range loops {
		if file, _ := os.ReadFile(path); strings.HasPrefix(string(file), b.dir) {
			b.t.Errorf("%s has %s", path, file)
		}
	}
	store := b.at("home/.cache/forkd/images/built")
	if _, err := os.Stat(store); err != nil {
		return // killed before
	}
	s, err := image.OpenStore(store)
	if err != nil {
		b.t.Fatal(err)
	}
	all, err := s.List()
	for _, img := range all {
		err = errors.Join(err, img.Verify(b.t.Context()))
	}
	if err != nil {
		b.t.Error(err)
	}
}

// processes returns those with the test's folder in their environment, except zombies.
func (b *builder) processes() (out []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(env, []byte(buildVariable+"="+b.dir+"\x00")) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		out = append(out, filepath.Base(filepath.Dir(path))+" "+strings.ReplaceAll(string(name), "\x00", " "))
	}
	return out
}

// unfinished matches folders of work that is not finished.
var unfinished = regexp.MustCompile(`/(\.tmp-|\.fetch-|forkd-)[^/]*$`)

// nothingUnfinished checks that the folders of killed builds are gone after one that succeeded.
func (b *builder) nothingUnfinished() {
	b.t.Helper()
	for _, dir := range []string{"home", "tmp"} {
		err := filepath.WalkDir(b.at(dir), func(path string, _ fs.DirEntry, err error) error {
			if unfinished.MatchString(path) || dir == "tmp" && path != b.at("tmp") {
				b.t.Errorf("left over: %s", path)
			}
			return err
		})
		if err != nil {
			b.t.Error(err)
		}
	}
}

// users are those who build: the test's own, and one without rights.
func users() []int {
	if os.Getuid() == 0 {
		return []int{0, 65534}
	}
	return []int{os.Getuid()}
}

// A build of a recipe is killed at steps of its tools and at its own reports. Then all processes have ended, the store has only
// whole images, and the next build makes the same image and removes what was left. A soak kills at all steps.
func TestKillsDuringABuildOfARecipe(t *testing.T) {
	random, bin := kvmtest.Random(kvmtest.Seed(t), 3), programs(t)
	for _, uid := range users() {
		t.Run(fmt.Sprintf("user %d", uid), func(t *testing.T) {
			calm := newBuilder(t, bin, uid, killedRecipe)
			calm.fakeTools()
			digest := calm.builds()
			steps := calm.steps()
			calm.nothingUnfinished()
			if len(steps) < 20 {
				t.Fatalf("a build has the steps %q", steps)
			}
			kills, reports := random.Perm(len(steps)), random.Perm(12)
			if os.Getenv(kvmtest.SoakVariable) == "" {
				kills, reports = kills[:4], reports[:2]
			}
			for _, i := range kills {
				t.Run(steps[i], func(t *testing.T) {
					b := newBuilder(t, bin, uid, killedRecipe)
					b.fakeTools()
					b.killedAtTool(i + 1)
					b.isSound(digest)
				})
			}
			for _, i := range reports {
				b := newBuilder(t, bin, uid, killedRecipe)
				b.fakeTools()
				note, _ := b.killedAtNote(i+1, time.Duration(random.IntN(30))*time.Millisecond)
				b.isSound(digest)
				t.Logf("killed after the report %q", note)
			}
		})
	}
}

// isSound checks what a killed build has left, and that the next one makes the image.
func (b *builder) isSound(digest string) {
	b.t.Helper()
	b.nothingRuns()
	if got := b.builds(); got != digest {
		b.t.Errorf("the next build makes %q, want %q", got, digest)
	}
	b.nothingUnfinished()
}

// fullScript builds on a disk of a size, and again with more room. $1 is the size.
const fullScript = `
mount -t tmpfs -o size="$1",mode=755 tmpfs "$HOME" || exit 99
mkdir "$HOME/tmp"
first=0
forkd image build --local "$RECIPE" || first=$?
[ $first != 0 ] || echo whole
mount -o remount,size=64M "$HOME" || exit 99
forkd image build --local "$RECIPE" || exit 98
find "$HOME" -name '.tmp-*' -o -name '.fetch-*' -o -name 'forkd-*'
exit $first
`

// A build on a full disk says which disk it is, and succeeds when there is room.
func TestABuildOfARecipeOnAFullDisk(t *testing.T) {
	random, bin := kvmtest.Random(kvmtest.Seed(t), 5), programs(t)
	calm := newBuilder(t, bin, os.Getuid(), killedRecipe)
	calm.fakeTools()
	digest := calm.builds()
	tries := 3
	if os.Getenv(kvmtest.SoakVariable) != "" {
		tries = 30
	}
	failed := 0
	for range tries {
		b := newBuilder(t, bin, os.Getuid(), killedRecipe)
		b.fakeTools()
		build := b.command()
		size := (random.IntN(100) + 10) * 4096
		cmd := exec.CommandContext(t.Context(), "sh", "-c", fullScript, "sh", strconv.Itoa(size))
		cmd.Dir, cmd.Env = build.Dir, append(build.Env, "RECIPE="+b.at("recipe"), "PATH="+b.bin+":"+b.path,
			"TMPDIR="+b.at("home/tmp"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
		var notes bytes.Buffer
		cmd.Stderr = &notes
		out, err := cmd.Output()
		code := cmd.ProcessState.ExitCode()
		if code == 0 {
			continue // the disk was large enough
		}
		failed++
		if string(out) != digest || !strings.Contains(notes.String(), "writes to the disk of "+b.at("home")) {
			t.Errorf("on a disk of %d bytes: %v\n%s\n%s", size, err, out, notes.String())
		}
		b.nothingRuns()
	}
	if failed == 0 {
		t.Error("no disk was full")
	}
}

// A build with the host's own tools is killed at each of its reports.
func TestKillsDuringABuildByDebiansTools(t *testing.T) {
	kvmtest.Soak(t)
	if os.Getenv("FORKD_TEST_IMAGE") != "1" {
		t.Skip("FORKD_TEST_IMAGE is not 1: downloads packages, needs mmdebstrap and mkfs.erofs")
	}
	random, bin := kvmtest.Random(kvmtest.Seed(t), 4), programs(t)
	const recipe = "name: killed\nsuite: bookworm\npackages: [busybox-static]\ndisk: 64MiB\n"
	digest := newBuilder(t, bin, os.Getuid(), recipe).builds()
	b := newBuilder(t, bin, os.Getuid(), recipe)
	for n := 1; ; n++ {
		note, ended := b.killedAtNote(n, time.Duration(random.IntN(8000))*time.Millisecond)
		b.nothingRuns()
		t.Logf("killed after report %d, %q", n, note)
		if ended {
			break
		}
	}
	b.isSound(digest)
}

// tinyKernel is a package of a kernel that has all modules built in.
func tinyKernel(t *testing.T) []byte {
	t.Helper()
	const lib = "lib/modules/6.12.0-test/"
	var builtin strings.Builder
	for _, name := range kernelpkg.GuestModules() {
		fmt.Fprintf(&builtin, "kernel/%s.ko\n", name)
	}
	segment := bytes.Repeat([]byte("kernel"), 1000)
	var vmlinux bytes.Buffer
	for _, v := range []any{
		elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: 0x1000000, Phoff: 64, Ehsize: 64,
			Phentsize: 56, Phnum: 1},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 120, Vaddr: 0x1000000, Paddr: 0x1000000,
			Filesz: uint64(len(segment)), Memsz: uint64(len(segment))}, segment} {
		if err := binary.Write(&vmlinux, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	var deb bytes.Buffer
	deb.WriteString("!<arch>\n")
	member := func(name string, data []byte) {
		fmt.Fprintf(&deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", name, 0, 0, 0, "100644", len(data), data)
		if len(data)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	member("debian-binary", []byte("2.0\n"))
	member("control.tar.gz", packedTar(t, map[string]string{"control": "Package: linux-image-6.12.0-test\nVersion: 6.12.0-1\n"}))
	member("data.tar.gz", packedTar(t, map[string]string{"boot/vmlinuz-6.12.0-test": vmlinux.String(),
		"boot/config-6.12.0-test": "CONFIG_VMGENID=y\n", lib + "modules.builtin": builtin.String(),
		lib + "kernel/unused.ko": "unused"}))
	return deb.Bytes()
}

func packedTar(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		err := w.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
