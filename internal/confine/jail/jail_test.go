package jail

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/jail/stage"
)

// TestMain also runs a process in its own mount namespace with a covered root.
func TestMain(m *testing.M) {
	if os.Args[0] != "covered" {
		os.Exit(m.Run())
	}
	if err := covered(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// cover returns the calls for a process that covers its root and executes the program at a descriptor.
func cover(t *testing.T, program int) *os.File {
	t.Helper()
	s := &stage.Script{}
	s.Add(mountEmpty(s)...)
	s.Add(coverRoot(s)...)
	for _, add := range []func(*stage.Script) ([]stage.Call, error){dropBounding, dropCapabilities} {
		calls, err := add(s)
		if err != nil {
			t.Fatal(err)
		}
		s.Add(calls...)
	}
	s.Add(call(unix.SYS_CHDIR, s.String("/")))
	s.Add(execute(s, program, []string{"covered"}, nil)...)
	s.Add(exit(99))
	f, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// covered checks the process whose root was covered.
func covered() error {
	for _, path := range []string{"/", "..", "../../..", "/proc/../.."} {
		entries, err := os.ReadDir(path)
		if err == nil && len(entries) > 0 || path == "/" && err != nil {
			return fmt.Errorf("%s has %v, %v", path, entries, err)
		}
	}
	for _, path := range []string{"/proc/self", "/etc/passwd", "/dev/null", "proc", "../etc"} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			return fmt.Errorf("%s: %v", path, err)
		}
	}
	if err := os.WriteFile("/new", nil, 0o600); err == nil {
		return fmt.Errorf("it could write")
	}
	if err := unix.Unmount("/", unix.MNT_DETACH); err == nil {
		return fmt.Errorf("it could unmount its root")
	}
	return nil
}

// pivot_root cannot replace an initramfs.
func TestARootThatIsCovered(t *testing.T) {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	stage := cover(t, 3)
	defer stage.Close()
	cmd := exec.Command("/proc/self/fd/4")
	cmd.ExtraFiles = []*os.File{program, stage}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Skipf("no mount namespace: %v", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSets(t *testing.T) {
	s := Set(0).With(Root).With(Files)
	if !s.Has(Root) || s.Has(PIDs) || s.Without(Root).Has(Root) || s.String() != "root, landlock files" {
		t.Errorf("the set is %s", s)
	}
	if n := Needed(); n.Has(Scope) || n.Has(TCP) || !n.Has(User) || n&^All != 0 {
		t.Errorf("needed are %s", n)
	}
	if f := All.CloneFlags(); f&unix.CLONE_NEWNS == 0 || f&unix.CLONE_NEWNET != 0 || f&unix.CLONE_NEWUSER != 0 {
		t.Errorf("flags %#x", f)
	}
	for p := range Parts {
		if p.String() == "" || p.What() == "" || strings.Contains(p.String(), ",") {
			t.Errorf("part %d has no name or does nothing", p)
		}
	}
}

func TestPickUser(t *testing.T) {
	uid, err := PickUser(Users + 7)
	if err != nil || uid != First+7 {
		t.Errorf("picked %d, %v", uid, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if other, err := PickUser(7); err != nil || other == uid {
		t.Errorf("picked %d, who has a process, %v", other, err)
	}
}
