//go:build linux

package seccomp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
)

// A test that restricts a process needs a separate one, so it runs this binary again.
const (
	variable = "FORKD_TEST_SECCOMP"
	survived = "survived"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(variable); name != "" {
		child(name)
	}
	os.Exit(m.Run())
}

// child installs a filter and makes a call.
func child(name string) {
	words := strings.Fields(name) // mode, filter, call
	mode := seccomp.Mode(words[0])
	c, known := calls[words[2]]
	if !known {
		fmt.Println("no such call")
		os.Exit(3)
	}
	var err error
	switch words[1] {
	case "spawn":
		runtime.LockOSThread()
		err = seccomp.Spawn.Install(mode, seccomp.ThisThread)
	case "vm":
		err = seccomp.VM.Install(mode, seccomp.AllThreads)
	case "vcpu", "jailed":
		if words[1] == "jailed" { // as in a jailed VMM, whose only thread had the first filter before its exec
			err = seccomp.Spawn.Install(mode, seccomp.AllThreads)
		}
		if err != nil {
			break
		}
		if err = seccomp.VM.Install(mode, seccomp.AllThreads); err == nil {
			runtime.LockOSThread()
			err = seccomp.VCPU.Install(mode, seccomp.ThisThread)
		}
	}
	if err == nil {
		err = c()
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(3)
	}
	fmt.Println(survived)
	os.Exit(0)
}

// spawned runs a child to its end.
func spawned(t testing.TB, mode seccomp.Mode, filter, call string) (out string, killed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", variable, mode, filter, call), "GOTRACEBACK=single")
	cmd.WaitDelay = time.Second // a child of the child may hold the output open
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	st := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return string(b), st.Signaled() && st.Signal() == unix.SIGSYS
}

func raw(number uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		return nil
	}
}

// fork forks. The child ends at once: a copy of Go's runtime with one thread can wait forever for the others.
func fork() error {
	if pid, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); pid == 0 && errno == 0 {
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return nil
}

// pipe is created before any filter, together with Go's poller.
var pipe = func() (p struct{ r, w *os.File }) {
	var err error
	if p.r, p.w, err = os.Pipe(); err != nil {
		panic(err)
	}
	return p
}()

// work does what any Go program does: it uses threads, memory, garbage collections, timers and existing sockets.
func work() error {
	r, w := pipe.r, pipe.w
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			runtime.LockOSThread() // the goroutine ends with its thread
			var junk [][]byte
			for range 50 {
				junk = append(junk, make([]byte, 64<<10))
			}
			time.Sleep(time.Millisecond) // elapses: a timer of the runtime
			runtime.KeepAlive(junk)
		})
	}
	wg.Go(func() { w.Write(make([]byte, 1<<20)); w.Close() })
	n := 0
	for b := make([]byte, 1<<16); ; {
		k, err := r.Read(b)
		if n += k; err != nil {
			break
		}
	}
	wg.Wait()
	runtime.GC()
	if n != 1<<20 {
		return fmt.Errorf("%d bytes came", n)
	}
	return nil
}

// calls are the calls that a VMM taken over by its guest would try, and calls that it must be able to make.
var calls = map[string]func() error{
	"work":          work,
	"socket":        raw(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM),
	"socketpair":    raw(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM),
	"connect":       raw(unix.SYS_CONNECT),
	"bind":          raw(unix.SYS_BIND),
	"listen":        raw(unix.SYS_LISTEN),
	"sendto":        raw(unix.SYS_SENDTO),
	"sendmsg":       raw(unix.SYS_SENDMSG, ^uintptr(0), 0, unix.MSG_NOSIGNAL),
	"fastopen":      raw(unix.SYS_SENDMSG, ^uintptr(0), 0, unix.MSG_FASTOPEN),
	"ppoll":         raw(unix.SYS_PPOLL, 0, 0, ^uintptr(0)),
	"shutdown":      raw(unix.SYS_SHUTDOWN, ^uintptr(0)),
	"openat":        raw(unix.SYS_OPENAT, ^uintptr(0)),
	"openat2":       raw(unix.SYS_OPENAT2),
	"flock":         raw(unix.SYS_FLOCK, 0),
	"execve":        raw(unix.SYS_EXECVE),
	"execveat":      raw(unix.SYS_EXECVEAT),
	"fork":          fork,
	"vfork":         raw(unix.SYS_VFORK),
	"newuser":       raw(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_THREAD|unix.CLONE_VM|unix.CLONE_SIGHAND),
	"clone3":        func() error { return wants(unix.ENOSYS, unix.SYS_CLONE3, 0, 0, 0) },
	"ptrace":        raw(unix.SYS_PTRACE),
	"vm_readv":      raw(unix.SYS_PROCESS_VM_READV),
	"kill":          raw(unix.SYS_KILL, 0, 0),
	"pidfd":         raw(unix.SYS_PIDFD_OPEN, 1, 0),
	"tgkill-other":  raw(unix.SYS_TGKILL, 1, 1, 0),
	"tgkill":        func() error { return unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGURG) },
	"nice":          func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 0) },
	"nice-other":    raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 1, 0),
	"nice-user":     raw(unix.SYS_SETPRIORITY, unix.PRIO_USER, 0, 0),
	"nice-better":   raw(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, ^uintptr(0)),
	"slack":         func() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, 1_000_000, 0, 0, 0) },
	"slack-more":    raw(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1_000_001),
	"mmap-exec":     raw(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON, ^uintptr(0)),
	"mprotect-exec": raw(unix.SYS_MPROTECT, 0, 4096, unix.PROT_EXEC),
	"pkey-exec":     raw(unix.SYS_PKEY_MPROTECT, 0, 4096, unix.PROT_EXEC),
	"memfd":         raw(unix.SYS_MEMFD_CREATE),
	"kvm-create-vm": raw(unix.SYS_IOCTL, ^uintptr(0), 0xae01),
	"kvm-memory":    raw(unix.SYS_IOCTL, ^uintptr(0), 0x4020ae46),
	"kvm-run":       raw(unix.SYS_IOCTL, ^uintptr(0), 0xae80),
	"kvm-sregs":     raw(unix.SYS_IOCTL, ^uintptr(0), 0x8138ae83),
	"tiocsti":       raw(unix.SYS_IOCTL, 0, unix.TIOCSTI),
	"setown":        raw(unix.SYS_FCNTL, 0, unix.F_SETOWN, 1),
	"getfl":         raw(unix.SYS_FCNTL, 0, unix.F_GETFL),
	"tcp-repair":    raw(unix.SYS_SETSOCKOPT, 0, unix.IPPROTO_TCP, unix.TCP_REPAIR),
	"tcp-ulp":       raw(unix.SYS_SETSOCKOPT, 0, unix.IPPROTO_TCP, unix.TCP_ULP),
	"keepalive":     raw(unix.SYS_SETSOCKOPT, 0, unix.SOL_SOCKET, unix.SO_KEEPALIVE),
	"zerocopy":      raw(unix.SYS_GETSOCKOPT, 0, unix.IPPROTO_TCP, unix.TCP_ZEROCOPY_RECEIVE),
	"io_uring":      raw(unix.SYS_IO_URING_SETUP),
	"bpf":           raw(unix.SYS_BPF),
	"mount":         raw(unix.SYS_MOUNT),
	"unshare":       raw(unix.SYS_UNSHARE, 0),
	"setns":         raw(unix.SYS_SETNS),
	"keyctl":        raw(unix.SYS_KEYCTL),
	"dumpable":      raw(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1),
	"futex-pi":      raw(unix.SYS_FUTEX, 0, 6),
	"userfaultfd":   raw(unix.SYS_USERFAULTFD),
	"getuid":        raw(unix.SYS_GETUID),
	"syslog":        raw(unix.SYS_SYSLOG),
	"x32":           raw(0x40000000 | unix.SYS_READ),
	"listener":      raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER),
	"pwrite":        raw(unix.SYS_PWRITE64, ^uintptr(0)),
	"ftruncate":     raw(unix.SYS_FTRUNCATE, ^uintptr(0)),
	"recvmsg":       raw(unix.SYS_RECVMSG, ^uintptr(0)),
	"close":         raw(unix.SYS_CLOSE, ^uintptr(0)),
	"other-thread": func() error { // the filter also applies there
		done := make(chan bool)
		go func() { runtime.LockOSThread(); unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); close(done) }()
		<-done
		return nil
	},
	"gc": func() error { // on a vCPU's thread, which creates no threads
		for range 200 {
			junk = make([]byte, 1<<20)
		}
		runtime.GC()
		done := make(chan bool)
		go func() { close(done) }()
		<-done
		return nil
	},
}

var junk []byte

func wants(want unix.Errno, number, a, b, c uintptr) error {
	if _, _, err := unix.Syscall(number, a, b, c); err != want {
		return fmt.Errorf("got %v, want %v", err, want)
	}
	return nil
}

func TestWhatAConfinedProcessCanDo(t *testing.T) {
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	for filter, c := range map[string]struct{ dies, lives string }{
		"spawn": {
			"socket connect bind listen ptrace vm_readv pidfd io_uring bpf mount unshare setns newuser keyctl syslog x32",
			"work clone3 fork getuid openat tgkill socketpair",
		},
		"vm": {
			"socket socketpair connect bind listen sendto fastopen openat openat2 flock execve execveat fork vfork newuser ptrace " +
				"vm_readv kill pidfd tgkill-other nice-other nice-user nice-better slack-more mmap-exec mprotect-exec pkey-exec memfd " +
				"kvm-create-vm kvm-memory tiocsti setown tcp-repair tcp-ulp zerocopy io_uring bpf mount unshare setns keyctl " +
				"syslog dumpable futex-pi userfaultfd getuid x32 listener other-thread",
			"work gc ppoll sendmsg shutdown clone3 tgkill nice slack kvm-run kvm-sregs getfl keepalive pwrite ftruncate recvmsg close",
		},
		"jailed": {"socket sendmsg openat clone3 x32", "gc kvm-run"},
		"vcpu": {
			"socket sendmsg recvmsg fastopen openat execve fork clone3 tgkill-other nice-other mmap-exec kvm-sregs kvm-create-vm " +
				"getfl keepalive close listener x32 other-thread",
			"gc shutdown tgkill nice kvm-run pwrite ftruncate",
		},
	} {
		for _, call := range strings.Fields(c.dies) {
			t.Run(filter+"/"+call, func(t *testing.T) {
				t.Parallel()
				if out, killed := spawned(t, seccomp.On, filter, call); !killed {
					t.Errorf("it is not killed, and says %q", out)
				}
			})
		}
		for _, call := range strings.Fields(c.lives) {
			t.Run(filter+"/"+call, func(t *testing.T) {
				t.Parallel()
				if out, killed := spawned(t, seccomp.On, filter, call); killed || !strings.HasPrefix(out, survived) {
					t.Errorf("killed: %v, it says %q", killed, out)
				}
			})
		}
	}
}

func TestModes(t *testing.T) {
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	if out, killed := spawned(t, seccomp.Log, "vm", "socket"); killed || !strings.HasPrefix(out, survived) {
		t.Errorf("log: killed: %v, it says %q", killed, out)
	}
	if out, killed := spawned(t, seccomp.Trap, "vm", "socket"); killed || !strings.Contains(out, "SIGSYS") || !strings.Contains(out, "goroutine") {
		t.Errorf("trap: killed: %v, it says %q", killed, out)
	}
	if _, killed := spawned(t, seccomp.Log, "vm", "x32"); !killed {
		t.Error("log: another architecture's call is done")
	}
	if err := seccomp.VM.Install(seccomp.Off, seccomp.AllThreads); err == nil {
		t.Error("off installs a filter")
	}
	for _, s := range []string{"on", "log", "trap", "off"} {
		if m, err := seccomp.ParseMode(s); err != nil || string(m) != s {
			t.Errorf("%s: %v, %v", s, m, err)
		}
	}
	if _, err := seccomp.ParseMode("strict"); err == nil {
		t.Error("there is a mode strict")
	}
}

// A thread with its own filter cannot get one together with the others. The error names the thread.
func TestAThreadWithAFilterOfItsOwn(t *testing.T) {
	if err := seccomp.Available(); err != nil {
		t.Skip(err)
	}
	if out, _ := spawned(t, seccomp.On, "spawn", "diverged"); !strings.Contains(out, "has one of its own") {
		t.Errorf("it says %q", out)
	}
}

func init() {
	calls["diverged"] = func() error { // another thread than the one with the filter
		done := make(chan error)
		go func() { runtime.LockOSThread(); done <- seccomp.VM.Install(seccomp.On, seccomp.AllThreads) }()
		return <-done
	}
}
