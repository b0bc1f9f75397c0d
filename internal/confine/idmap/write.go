package idmap

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Write writes the maps of a process's user namespace. The process must belong to the real user and
// group of the caller, who must hold CAP_SETUID and CAP_SETGID, and must have made the namespace.
func Write(pid int) error {
	dir, err := unix.Open(fmt.Sprintf("/proc/%d", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	// The kernel checks this too: only the creator of a namespace has rights over it.
	if int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
		return fmt.Errorf("process %d belongs to user %d and group %d", pid, st.Uid, st.Gid)
	}
	for _, k := range Kinds() {
		entries, err := Entries(k)
		if err != nil {
			return err
		}
		if err := writeMap(dir, string(k)+"_map", entries); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return nil
}

// writeMap writes a map. The kernel takes it in one write, once.
func writeMap(dir int, name string, entries []Entry) error {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%d %d %d\n", e.Inside, e.Outside, e.Count)
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	_, err = f.WriteString(b.String())
	return err
}
