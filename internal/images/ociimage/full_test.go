package ociimage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// fullVariable makes the child process of killedVariable pull onto full disks.
const fullVariable = "FORKD_TEST_FULL"

// The disk becomes full at each report of a pull's progress. No blob of a full disk has a name with another content, and
// a retry with more room succeeds. A child has the disks, in its own name space of mounts.
func TestPullsOntoFullDisks(t *testing.T) {
	b := newBench(t)
	ref := b.push("1", imageOf(t, v1.Config{}, tarOf(t, "f="+string(big(900_000))), tarOf(t, "g="+string(big(300_000)))))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), killedVariable+"="+ref, "FORKD_TEST_DIR="+t.TempDir(), fullVariable+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.Output()
	t.Logf("%s", out)
	if n := strings.Count(string(out), "no space left"); err != nil || n < 8 {
		t.Errorf("%v: %d pulls met a full disk", err, n)
	}
}

// pullFull is the child. It prints the errors.
func pullFull(ctx context.Context, ref, dir string) error {
	for reports := 0; ; reports++ {
		first, err := pullOnto(ctx, ref, dir, reports)
		if err != nil {
			return fmt.Errorf("full after %d reports: %w", reports, err)
		}
		if first == nil {
			fmt.Printf("%d reports\n", reports)
			return nil
		}
		fmt.Printf("full after %d reports: %v\n", reports, first)
	}
}

// pullOnto pulls onto a disk that others fill after some reports of progress, and again onto an empty one. It returns
// the error of the first pull.
func pullOnto(ctx context.Context, ref, dir string, reports int) (first, err error) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1g"); err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, 0)) }()
	fill := func() {
		if reports--; reports != -1 {
			return
		}
		for err = unix.EINVAL; errors.Is(err, unix.EINVAL); { // a write came in between
			var st unix.Statfs_t
			if err = unix.Statfs(dir, &st); err == nil {
				used := int64(st.Blocks-st.Bfree) * st.Bsize // #nosec G115 -- of a small disk
				err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", used+8192))
			}
		}
	}
	fill()
	first = pullSeen(ctx, ref, dir, fill)
	if err != nil {
		return nil, err
	}
	if first != nil && !errors.Is(first, unix.ENOSPC) {
		return nil, fmt.Errorf("another error than that of a full disk: %w", first)
	}
	all, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range all {
		b, err := os.ReadFile(path)
		if err != nil || digestOf(b).Hex != filepath.Base(path) {
			return nil, fmt.Errorf("after %w: %s has other content: %w", first, path, err)
		}
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=1g"); err != nil {
		return nil, fmt.Errorf("remount: %w", err)
	}
	if err := pullOnce(ctx, ref, dir); err != nil {
		return nil, fmt.Errorf("retry after %w: %w", first, err)
	}
	return first, nil
}
