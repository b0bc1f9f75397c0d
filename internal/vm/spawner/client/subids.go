package client

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail"
)

// Programs for mapping users of /etc/subuid and /etc/subgid, see subuid(5).
const (
	mapUsers  = "newuidmap"
	mapGroups = "newgidmap"
)

// mapping describes how an ordinary user gets users for its VMs.
type mapping struct {
	newuidmap, newgidmap string
	uids, gids           uint32 // the first ids of ranges of jail.Users ids
}

// findMapping returns the mapping of this host for this user.
func findMapping() (m mapping, err error) {
	if m.newuidmap, err = exec.LookPath(mapUsers); err == nil {
		m.newgidmap, err = exec.LookPath(mapGroups)
	}
	if err != nil {
		return m, fmt.Errorf("%w (Debian: the package uidmap)", err)
	}
	if m.uids, err = firstOf("/etc/subuid"); err == nil {
		m.gids, err = firstOf("/etc/subgid")
	}
	if err != nil {
		return m, err
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 0 {
		return m, errors.New("no_new_privs is set: newuidmap has no rights")
	}
	return m, nil
}

// OwnUsers returns the reason why the VMs of this daemon's user are all one user here; nil if each
// has its own.
func OwnUsers() error {
	if os.Geteuid() == 0 {
		if !jail.HasUsers() {
			return fmt.Errorf("this root is one of a user namespace, which lacks the users from %d on", jail.First)
		}
		if !rulesOthers() {
			return errors.New("this root may not rule over other users: it lacks CAP_KILL or CAP_SYS_PTRACE")
		}
		return nil
	}
	_, err := findMapping()
	return err
}

// firstOf returns the start of a sufficient range for this user.
func firstOf(path string) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	uid := strconv.Itoa(os.Geteuid())
	name := uid
	if u, err := user.LookupId(uid); err == nil {
		name = u.Username
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if first, ok := parseRange(lines.Text(), name, uid); ok {
			return first, nil
		}
	}
	return 0, fmt.Errorf("%s has no range of %d for %s", path, jail.Users, name)
}

// parseRange reads a line, NAME-OR-UID:FIRST:COUNT.
func parseRange(line, name, uid string) (first uint32, ok bool) {
	fields := strings.Split(strings.TrimSpace(line), ":")
	if len(fields) != 3 || fields[0] != name && fields[0] != uid {
		return 0, false
	}
	from, err := strconv.ParseUint(fields[1], 10, 32)
	n, err2 := strconv.ParseUint(fields[2], 10, 32)
	return uint32(from), err == nil && err2 == nil && n >= uint64(jail.Users) && from+n <= 1<<32-1
}

// of makes the two programs write the maps of a process: this user becomes root, and the range
// becomes the users of VMs.
func (m mapping) of(pid int) error {
	for _, c := range []struct {
		program string
		own     int
		first   uint32
	}{{m.newuidmap, os.Geteuid(), m.uids}, {m.newgidmap, os.Getegid(), m.gids}} {
		var args []string
		for _, n := range []uint32{uint32(pid), 0, uint32(c.own), 1, jail.First, c.first, jail.Users} {
			args = append(args, strconv.FormatUint(uint64(n), 10))
		}
		if out, err := exec.Command(c.program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c.program, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
