package initns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/leaf/initprogram"
)

// Names of this test's program: the set-up of a guest's /run, and the inits.
const (
	guestName   = "forkd-test-guest"
	initName    = "init"
	systemdName = "systemd"
)

func TestMain(m *testing.M) {
	if code, known := Run(os.Args[0], os.Args[1:]); known {
		os.Exit(code)
	}
	switch filepath.Base(os.Args[0]) {
	case guestName:
		fmt.Fprintln(os.Stderr, becomeOuter(os.Args[1:]))
		os.Exit(99)
	case initName, systemdName:
		os.Exit(actAsInit(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// becomeOuter gives the process a /run of its own and becomes the command.
func becomeOuter(args []string) error {
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.Mkdir("/run/forkd", 0o755); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", append([]string{initprogram.Runner}, args...), os.Environ())
}

// actAsInit is an init for tests. It does what its argument names.
func actAsInit(args []string) int {
	if os.Getpid() != 1 {
		fmt.Println("not the first process but", os.Getpid())
		return 98
	}
	first, _ := os.ReadFile("/proc/1/comm")
	fmt.Printf("pid 1 is %s, container is %s, args are %q\n", strings.TrimSpace(string(first)), os.Getenv("container"), args)
	switch args[0] {
	case "end":
		return 42
	case "off":
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	case "reboot":
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	case "console":
		if err := os.WriteFile("/dev/console", []byte("one\ntwo\n"), 0); err != nil {
			fmt.Println(err)
		}
		return 0
	case "hang up":
		return hangUp()
	}
	came := make(chan os.Signal, 1)
	signal.Notify(came, unix.SIGTERM, unix.SIGUSR1, powerOff)
	child := exec.Command("/bin/sleep", "1000") // holds the output open
	child.Stdout = os.Stdout
	_ = child.Start()
	fmt.Println("waiting")
	got, _ := (<-came).(syscall.Signal)
	return int(got)
}

// hangUp hangs the console up, as a getty does, and writes to it again.
func hangUp() int {
	fd, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TIOCVHANGUP, 0)
	}
	if err == nil {
		err = os.WriteFile("/dev/console", []byte("after\n"), 0)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// start runs an init by the command in a mount namespace of its own.
func start(t *testing.T, name string, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root here; a guest's command has it")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), name)
	b, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(program, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "init")
	if err := os.Symlink(program, at); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = append([]string{guestName, at}, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

// end returns the rest of an init's output, once no process holds it, and its exit code.
func end(t *testing.T, cmd *exec.Cmd, out io.Reader) (string, int) {
	t.Helper()
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return string(rest), cmd.ProcessState.ExitCode()
}

func TestAnInitIsTheFirstProcess(t *testing.T) {
	const first = "pid 1 is init, container is forkd, args are "
	for _, tc := range []struct {
		does, out string
		code      int
	}{
		{"end", first + "[\"end\" \"a b\"]\n", 42},
		{"off", first + "[\"off\" \"a b\"]\n", 0},
		{"reboot", first + "[\"reboot\" \"a b\"]\n", 128 + int(unix.SIGHUP)},
		{"console", first + "[\"console\" \"a b\"]\none\ntwo\n", 0},
		{"hang up", first + "[\"hang up\" \"a b\"]\nafter\n", 0},
	} {
		t.Run(tc.does, func(t *testing.T) {
			cmd, r := start(t, initName, tc.does, "a b")
			if out, code := end(t, cmd, r); out != tc.out || code != tc.code {
				t.Errorf("printed %q, exit code %d; want %q, %d", out, code, tc.out, tc.code)
			}
		})
	}
}

func TestSignalsReachTheInit(t *testing.T) {
	for _, tc := range []struct {
		name, program string
		signal        syscall.Signal
		code          int
	}{
		{"the stop signal of most images", initName, unix.SIGTERM, int(unix.SIGTERM)},
		{"another one", initName, unix.SIGUSR1, int(unix.SIGUSR1)},
		{"systemd powers off", systemdName, unix.SIGTERM, 37},
		{"systemd's own signal", systemdName, powerOff, 37},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd, r := start(t, tc.program, "wait")
			await(t, r, "waiting\n")
			if err := cmd.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			if _, code := end(t, cmd, r); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
		})
	}
}

// The output ends when no process of the namespace holds it any more.
func TestAKilledCommandEndsTheNamespace(t *testing.T) {
	cmd, r := start(t, initName, "wait")
	await(t, r, "waiting\n")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if out, code := end(t, cmd, r); out != "" || code != -1 {
		t.Errorf("printed %q, exit code %d", out, code)
	}
}

func await(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("the output ended before %q: %v", want, err)
		}
		if line == want {
			return
		}
	}
}

func TestWrongCommandLines(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
	}{
		{"no program", nil, exitUsage},
		{"a name", []string{"init"}, exitUsage},
		{"a missing program", []string{plain + "2"}, exitNotFound},
		{"a plain file", []string{plain}, exitNoExec},
		{"a folder", []string{filepath.Dir(plain)}, exitNoExec},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if os.Geteuid() != 0 && tc.code != exitUsage {
				tc.code = exitFailed // only root runs inits
			}
			if code, known := Run(initprogram.Runner, tc.args); code != tc.code || !known {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
		})
	}
	if code, known := Run("/x/"+innerName, []string{"/dev/null", "/bin/true"}); code != exitUsage || !known {
		t.Errorf("the inner process outside of its namespaces: exit code %d", code)
	}
	if _, known := Run("forkd-agent", nil); known {
		t.Error("the agent is taken for a command of this package")
	}
}
