package client

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/idmap"
	"github.com/forkd/forkd/internal/confine/jail"
)

// Programs for mapping users of /etc/subuid and /etc/subgid, see subuid(5).
const (
	mapUsers  = "newuidmap"
	mapGroups = "newgidmap"
	mapBoth   = "forkd-idmap"
)

// mapping describes how an ordinary user gets users for its VMs.
type mapping struct {
	idmap                string // writes both maps; if empty, the next two do
	newuidmap, newgidmap string
}

// findMapping returns the mapping of this host for this user.
func findMapping() (m mapping, err error) {
	if m.idmap = privileged(); m.idmap == "" {
		if m.newuidmap, err = exec.LookPath(mapUsers); err == nil {
			m.newgidmap, err = exec.LookPath(mapGroups)
		}
		if err != nil {
			return m, fmt.Errorf("%w (Debian: the package uidmap)", err)
		}
	}
	for _, kind := range idmap.Kinds() {
		if _, err := idmap.First(kind); err != nil {
			return m, err
		}
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set != 0 {
		return m, errors.New("no_new_privs is set: newuidmap and forkd-idmap have no rights")
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

// of has the maps of a process written: this user becomes root, and the range becomes the users of
// VMs.
func (m mapping) of(pid int) error {
	if m.idmap != "" {
		return mapBy(m.idmap, strconv.Itoa(pid))
	}
	for _, c := range []struct {
		program string
		kind    idmap.Kind
	}{{m.newuidmap, idmap.Users}, {m.newgidmap, idmap.Groups}} {
		entries, err := idmap.Entries(c.kind)
		if err != nil {
			return err
		}
		args := []string{strconv.Itoa(pid)}
		for _, e := range entries {
			for _, n := range []uint32{e.Inside, e.Outside, e.Count} {
				args = append(args, strconv.FormatUint(uint64(n), 10))
			}
		}
		if err := mapBy(c.program, args...); err != nil {
			return err
		}
	}
	return nil
}

func mapBy(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// privileged returns the path of forkd-idmap beside this program, if this user may execute it and it
// has capabilities.
func privileged() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(self), mapBoth)
	if unix.Access(path, unix.X_OK) != nil {
		return ""
	}
	if n, err := unix.Getxattr(path, "security.capability", nil); err != nil || n == 0 {
		return ""
	}
	return path
}
