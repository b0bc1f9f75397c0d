//go:build linux

package imagebuild

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/sys/unix"
)

// childVariable makes a child process of the tests: WORK|DIR.
const childVariable = "FORKD_TEST_EXPORT"

func TestMain(m *testing.M) {
	work, dir, ok := strings.Cut(os.Getenv(childVariable), "|")
	if !ok {
		os.Exit(m.Run())
	}
	if err := map[string]func(string) error{"hang": hang, "full": full}[work](dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hang is an export that has written its image and waits.
func hang(dir string) error {
	w, err := workIn(dir)
	if err != nil {
		return err
	}
	if err := bigTar(filepath.Join(w.path, "root.tar"), 1<<20); err != nil {
		return err
	}
	fmt.Println(w.path)
	time.Sleep(time.Hour)
	return nil
}

// full assembles images on disks with room for less and less of them.
func full(dir string) error {
	ref, err := name.NewTag("app:latest")
	if err != nil {
		return err
	}
	for _, format := range []string{FormatDocker, FormatOCI} {
		for _, kib := range []int{8192, 1800, 1200, 600, 100} {
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
				return fmt.Errorf("mount: %w", err)
			}
			if err := exportOnto(dir, format, ref); err != nil {
				return fmt.Errorf("%s on %d KiB: %w", format, kib, err)
			}
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil { // the library leaves a file open after an error
				return err
			}
		}
	}
	return nil
}

// exportOnto returns an error unless the export succeeds, or leaves the older file as it was and no other.
func exportOnto(dir, format string, ref name.Tag) error {
	e := Export{Format: format, File: filepath.Join(dir, "app.tar")}
	if err := os.WriteFile(e.File, []byte("older"), 0o600); err != nil {
		return err
	}
	w, err := workIn(dir)
	if err != nil {
		return err
	}
	root := filepath.Join(w.path, "root.tar")
	if err = bigTar(root, 1<<20); err == nil {
		err = e.assemble(w.path, root, Config{}, ref)
	}
	w.remove()
	entries, listed := os.ReadDir(dir)
	b, read := os.ReadFile(e.File)
	switch {
	case listed != nil || read != nil || len(entries) != 1:
		return fmt.Errorf("after %v the disk has %v: %v, %v", err, entries, listed, read)
	case err == nil && len(b) > 1<<20:
		fmt.Println("written")
		return nil
	case errors.Is(err, unix.ENOSPC) && string(b) == "older":
		fmt.Println("no space left")
		return nil
	}
	return fmt.Errorf("the export has %w, and its file %d bytes", err, len(b))
}

// bigTar writes a tar file with a file of that size, which no compression makes smaller.
func bigTar(path string, size int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	b := make([]byte, size)
	seed := uint32(1)
	for i := range b {
		seed = seed*1664525 + 1013904223
		b[i] = byte(seed >> 24)
	}
	err = w.WriteHeader(&tar.Header{Name: "f", Mode: 0o644, Size: int64(size), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(b)
	}
	return errors.Join(err, w.Close(), f.Close())
}

func child(t *testing.T, work, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childVariable+"="+work+"|"+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// started starts a hanging export, and returns its directory.
func started(t *testing.T, dir string) (work string, kill func()) {
	t.Helper()
	cmd := child(t, "hang", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, &work); err != nil {
		t.Fatal(err)
	}
	kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(kill)
	return work, kill
}

func TestAKilledExportIsSweptByTheNext(t *testing.T) {
	dir := t.TempDir()
	killed, kill := started(t, dir)
	kill()
	running, _ := started(t, dir)
	young, killYoung := started(t, dir)
	killYoung()
	foreign := filepath.Join(dir, workPrefix+"link")
	target := t.TempDir()
	if err := os.Symlink(target, foreign); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * justMade)
	for _, path := range []string{killed, running} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	w, err := workIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{killed: false, running: true, young: true, foreign: true, target: true, w.path: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	if b, err := os.ReadDir(running); err != nil || len(b) != 1 {
		t.Errorf("the running export has %v, %v", b, err)
	}
	w.remove()
	if _, err := os.Stat(w.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

func TestExportsOntoFullDisks(t *testing.T) {
	cmd := child(t, "full", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.Output()
	if written, full := strings.Count(string(out), "written"), strings.Count(string(out), "no space"); err != nil || written < 2 || full < 6 {
		t.Errorf("%v: %d exports were written, %d met a full disk: %s", err, written, full, out)
	}
}
