package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DeviceOf returns the disk of a directory's file system, in the format of io.max.
func DeviceOf(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", fmt.Errorf("find the disk of %s: %w", dir, err)
	}
	return deviceOf("/sys/dev/block", unix.Major(st.Dev), unix.Minor(st.Dev))
}

// deviceOf looks up a device in sysfs. For a partition it returns the disk, as io.max requires.
func deviceOf(sys string, major, minor uint32) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, fmt.Sprintf("%d:%d", major, minor)))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("its file system is not on one block device: %w", ErrUnsupported)
	}
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, "dev"))
	return strings.TrimSpace(string(b)), err
}
