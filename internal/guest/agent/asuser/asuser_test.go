package asuser

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent/account"
)

// someone has no account here. Only the ids count.
var someone = account.User{Name: "someone", UID: 54321, GID: 54322, Groups: []uint32{54322, 54323}}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can take another user's rights")
	}
}

func TestTheThreadHasTheUsersRightsAndNoMore(t *testing.T) {
	needRoot(t)
	var status string
	err := Do(someone, func() error {
		b, err := os.ReadFile("/proc/thread-self/status")
		status = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"Uid:\t0\t54321\t0\t54321", "Gid:\t0\t54322\t0\t54322", "Groups:\t54322 54323 ",
		"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000",
	} {
		if !strings.Contains(status, line+"\n") {
			t.Errorf("no line %q in\n%s", line, status)
		}
	}
}

func TestFilesAreTheUsers(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the test's own directory, accessible only to root
		t.Fatal(err)
	}
	own, secret := filepath.Join(dir, "own"), filepath.Join(dir, "secret")
	if err := errors.Join(os.Mkdir(own, 0o700), os.Chown(own, someone.UID, someone.GID), os.WriteFile(secret, []byte("s"), 0o600)); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(own, "made")
	err := Do(someone, func() error {
		if err := os.WriteFile(made, nil, 0o600); err != nil {
			return err
		}
		denied := map[string]error{
			"read root's file":          second(os.ReadFile(secret)),
			"write beside it":           os.WriteFile(filepath.Join(dir, "x"), nil, 0o600),
			"remove it":                 os.Remove(secret),
			"give own file away":        os.Chown(made, 1, 1),
			"take root's file":          os.Chown(secret, someone.UID, someone.GID),
			"change root's file's mode": os.Chmod(secret, 0o666),
			"make a device":             unix.Mknod(filepath.Join(own, "dev"), unix.S_IFCHR|0o666, 0x103),
			"write a sysctl":            second(os.OpenFile("/proc/sys/kernel/core_pattern", os.O_WRONLY, 0)),
			"read the agent's memory":   second(os.OpenFile("/proc/self/mem", os.O_RDONLY, 0)),
			"read its environment":      second(os.ReadFile("/proc/self/environ")),
		}
		for what, err := range denied {
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: got %v", what, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(made, &st); err != nil || st.Uid != 54321 || st.Gid != 54322 {
		t.Errorf("made file belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	if _, err := os.ReadFile(secret); err != nil {
		t.Errorf("the agent's own rights are gone: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestPanicsReachTheCaller(t *testing.T) {
	needRoot(t)
	defer func() {
		if p := recover(); p != "x" {
			t.Errorf("recovered %v", p)
		}
	}()
	_ = Do(someone, func() error { panic("x") })
	t.Error("no panic")
}

func TestWithoutRootOnlyOneself(t *testing.T) {
	self := account.User{UID: os.Getuid()}
	if err := Do(self, func() error { return fs.ErrExist }); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	if os.Getuid() == 0 {
		return
	}
	if err := Do(someone, func() error { t.Error("ran"); return nil }); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
}
