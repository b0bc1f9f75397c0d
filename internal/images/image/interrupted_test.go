package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/images/debtool"
)

// workVariable names the work of a child process, and its folder: KIND|DIR.
const workVariable = "FORKD_TEST_IMAGE_WORK"

func TestMain(m *testing.M) {
	kind, dir, ok := strings.Cut(os.Getenv(workVariable), "|")
	if !ok {
		os.Exit(m.Run())
	}
	var err error
	if kind == "full" {
		err = full(dir)
	} else if err = works[kind].do(dir, gate); err == nil {
		gate("done")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// gate tells the parent process a step, and waits until it may go on.
func gate(step string) {
	fmt.Println(step)
	_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
}

// work is one way to make the image "new" in the store DIR/images, which may have it already.
type work struct {
	do func(dir string, gate func(string)) error
	// whole returns an error unless a finished part is whole. It reports whether there is one.
	whole func(dir string) (bool, error)
}

var works = map[string]work{
	"import": {importWork, storeIsWhole},
	"graft":  {graftWork, storeIsWhole},
	"root":   {rootWork, cacheIsWhole},
}

// streamOf is the export of an image with a root that is larger than a few blocks.
func streamOf(dir string) ([]byte, error) {
	s, err := OpenStore(filepath.Join(dir, "source"))
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(dir, "parts")
	if err != nil {
		return nil, err
	}
	m, parts := testMetadata("new"), map[string]entry{}
	for file, data := range testFilesOf("new") {
		data = bytes.Repeat(data, 10_000)
		m.Files[file] = FileSum{Size: int64(len(data)), SHA256: sum(data)}
		if err := os.WriteFile(filepath.Join(tmp, file), data, 0o644); err != nil {
			return nil, err
		}
		parts[file] = entry{dir: tmp}
	}
	img, err := (&build{}).store(s, m, parts)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = img.Export(context.Background(), &b, nil)
	return b.Bytes(), err
}

// gated waits before each piece.
type gated struct {
	r    io.Reader
	gate func(string)
}

func (g gated) Read(p []byte) (int, error) {
	g.gate("read")
	return g.r.Read(p[:min(len(p), 64<<10)])
}

func importWork(dir string, gate func(string)) error {
	s, err := OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		return err
	}
	stream, err := os.ReadFile(filepath.Join(dir, "stream"))
	if err != nil {
		return err
	}
	_, err = s.Import(context.Background(), gated{bytes.NewReader(stream), gate})
	return err
}

func graftWork(dir string, gate func(string)) error {
	s, err := OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		return err
	}
	donors, err := OpenStore(filepath.Join(dir, "source"))
	if err != nil {
		return err
	}
	donor, err := donors.Get("new")
	if err != nil {
		return err
	}
	write := func(_ context.Context, path, _ string, _ Guest, _ func(float64)) (Account, error) {
		f, err := os.Create(path)
		if err != nil {
			return Account{}, err
		}
		for range 4 {
			gate("write")
			if _, err := f.Write(bytes.Repeat([]byte("r"), 100_000)); err != nil {
				return Account{}, errors.Join(err, f.Close())
			}
		}
		gate("close")
		return Account{User: "root", Workdir: "/"}, f.Close()
	}
	_, err = Graft(context.Background(), s, donor, Foreign{Name: "new", Write: write}, func(float64) {})
	return err
}

// rootWork is the part of a build that makes the root, with a step before each tool and after it.
func rootWork(dir string, gate func(string)) error {
	agent := filepath.Join(dir, "agent")
	if err := os.WriteFile(agent, []byte("\x7fELF agent"), 0o755); err != nil {
		return err
	}
	recipe, err := ParseRecipe("dir/recipe.yaml", []byte(smallRecipe))
	if err != nil {
		return err
	}
	tools := &fakeTools{versions: strings.Repeat("5", 100_000)}
	run := func(ctx context.Context, c debtool.Command) ([]byte, error) {
		gate("before-" + c.Args[0])
		out, err := tools.run(ctx, c)
		gate("after-" + c.Args[0])
		return out, err
	}
	b, err := newBuild(BuildConfig{Recipe: recipe, Agent: agent, Cache: filepath.Join(dir, "cache"), Run: run, AptRoot: dir})
	if err != nil {
		return err
	}
	_, err = b.rootPart(context.Background())
	return err
}

func storeIsWhole(dir string) (bool, error) {
	s, err := OpenStore(filepath.Join(dir, "images"))
	if err != nil {
		return false, err
	}
	all, err := s.List()
	for _, img := range all {
		err = errors.Join(err, img.Verify(context.Background()))
	}
	return len(all) > 0, err
}

func cacheIsWhole(dir string) (bool, error) {
	c, err := openCache(filepath.Join(dir, "cache"))
	if err != nil {
		return false, err
	}
	keys, err := filepath.Glob(filepath.Join(c.dir, kindRoot, "[^.]*")) // without folders of killed processes
	if err != nil || len(keys) == 0 {
		return false, err
	}
	e, ok := c.get(kindRoot, filepath.Base(keys[0]))
	if !ok {
		return true, fmt.Errorf("entry %s is not whole", keys[0])
	}
	for name, want := range e.Files {
		if got, err := sumFile(context.Background(), filepath.Join(e.dir, name)); err != nil || got != want {
			return true, fmt.Errorf("%s has another content: %w", name, err)
		}
	}
	return true, nil
}

// prepare writes what the works need.
func prepare(dir string) error {
	stream, err := streamOf(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "stream"), stream, 0o600)
}

// A process is killed at each step of an import, of the grafting of a root and of the build of a root. What it made
// is whole or absent, and a retry succeeds.
func TestKilledWork(t *testing.T) {
	for kind, w := range works {
		t.Run(kind, func(t *testing.T) {
			for steps := 1; ; steps++ {
				dir := t.TempDir()
				if err := prepare(dir); err != nil {
					t.Fatal(err)
				}
				last := killedAfter(t, kind, dir, steps)
				there, err := w.whole(dir)
				if err != nil || there != (last == "done") {
					t.Errorf("killed at step %d, %s: there: %v, %v", steps, last, there, err)
				}
				if err := w.do(dir, func(string) {}); err != nil {
					t.Errorf("after a kill at step %d, %s: %v", steps, last, err)
				}
				if there, err = w.whole(dir); !there || err != nil {
					t.Errorf("retry after a kill at step %d, %s: there: %v, %v", steps, last, there, err)
				}
				if last == "done" {
					if steps < 4 {
						t.Errorf("only %d steps", steps)
					}
					return
				}
			}
		})
	}
}

// killedAfter starts a child, kills it at a step, and returns the step.
func killedAfter(t *testing.T, kind, dir string, steps int) (last string) {
	t.Helper()
	cmd := child(t, kind, dir)
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for n := 1; ; n++ {
		if _, err := fmt.Fscanln(out, &last); err != nil && last == "" {
			t.Fatal(err)
		}
		if n == steps || last == "done" {
			return last
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
}

func child(t *testing.T, kind, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), workVariable+"="+kind+"|"+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// Each work runs on disks of growing size until it succeeds. What a full disk leaves is whole or absent, and a retry
// with more room succeeds. A child has the disks, in its own name space of mounts.
func TestFullDisks(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "full", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.Output()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for kind := range works {
		if !strings.Contains(string(out), kind+" failed") {
			t.Errorf("%s never met a full disk", kind)
		}
	}
}

// full is the child.
func full(dir string) error {
	const step, room = 64 << 10, 4 << 20
	for kind, w := range works {
		failed := 0
		for extra := int64(0); ; extra += step {
			done, err := fullOnce(dir, w, extra, room)
			if err != nil {
				return fmt.Errorf("%s with %d KiB: %w", kind, extra>>10, err)
			}
			if done {
				break
			}
			failed++
		}
		fmt.Printf("%s failed on %d disks\n", kind, failed)
	}
	return nil
}

// fullOnce does the work on a disk with some free bytes, and again with more of them. It reports whether the first try
// succeeded.
func fullOnce(dir string, w work, extra, room int64) (done bool, err error) {
	size := func(n int64) string { return fmt.Sprintf("size=%d", n) }
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, size(room)); err != nil {
		return false, fmt.Errorf("mount: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, 0)) }()
	if err := prepare(dir); err != nil {
		return false, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, err
	}
	used := int64(st.Blocks-st.Bfree) * st.Bsize // #nosec G115 -- of a small disk
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, size(used+extra+4096)); err != nil {
		return false, fmt.Errorf("remount: %w", err)
	}
	first := w.do(dir, func(string) {})
	if first != nil && !errors.Is(first, unix.ENOSPC) {
		return false, fmt.Errorf("another error than that of a full disk: %w", first)
	}
	if first != nil && extra > 0 { // a disk without any room cannot even be opened
		if there, err := w.whole(dir); err != nil || there {
			return false, fmt.Errorf("after %w: there: %v, %w", first, there, err)
		}
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, size(2*room)); err != nil {
		return false, fmt.Errorf("remount: %w", err)
	}
	if err := w.do(dir, func(string) {}); err != nil {
		return false, fmt.Errorf("retry after %w: %w", first, err)
	}
	if there, err := w.whole(dir); err != nil || !there {
		return false, fmt.Errorf("retry: there: %v, %w", there, err)
	}
	return first == nil, nil
}
