package stage

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func call(number uintptr, args ...uint64) Call { return Call{Number: number, Args: args} }

func exit(status uint64) Call { return call(unix.SYS_EXIT_GROUP, status) }

// process makes the calls in a new process. It returns the process's output and status.
func process(t *testing.T, s *Script) (string, int) {
	t.Helper()
	f, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{f}
	out, err := cmd.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (s *Script) say(text string) Call {
	return call(unix.SYS_WRITE, 1, s.String(text), uint64(len(text)))
}

func TestCallsAreMadeInOrder(t *testing.T) {
	s := &Script{}
	s.Add(s.say("one "), s.say("two "))
	s.Add(s.say("three"))
	s.Add(exit(7))
	if out, status := process(t, s); out != "one two three" || status != 7 {
		t.Errorf("%q, status %d", out, status)
	}
}

// A group ends with its first failure, which is reported. The next group is executed.
func TestWhatFails(t *testing.T) {
	s := &Script{}
	bad := call(unix.SYS_CLOSE, 999)
	bad.Slot = 5
	s.Add(s.say("a"), bad, s.say("not this"))
	missing := call(unix.SYS_OPENAT, ^uint64(99), s.String("/no/such/file"), unix.O_RDONLY)
	missing.Slot = Slots - 1
	s.Add(missing)
	s.Add(call(unix.SYS_WRITE, 1, Errors(), Slots))
	s.Add(exit(0))
	out, status := process(t, s)
	want := make([]byte, Slots)
	want[5], want[Slots-1] = byte(unix.EBADF), byte(unix.ENOENT)
	if out != "a"+string(want) || status != 0 {
		t.Errorf("%q, status %d", out, status)
	}
}

func TestUntil(t *testing.T) {
	s := &Script{}
	s.Add(call(unix.SYS_CLOSE, 999))
	s.Add(s.say("not this"))
	s.Until(0)
	s.Add(s.say("that"))
	s.Add(exit(0))
	if out, status := process(t, s); out != "that" || status != 0 {
		t.Errorf("%q, status %d", out, status)
	}
}

// A kept result is passed to the calls that ask for it. Fine errors skip other calls than success does.
func TestWhatIsKeptAndFine(t *testing.T) {
	s := &Script{}
	text := "kept"
	fd := call(unix.SYS_MEMFD_CREATE, s.String("x"), 0)
	fd.Keep = true
	read := call(unix.SYS_LSEEK, 0, 0, 0)
	read.Kept, read.Then = true, 1
	copied := call(unix.SYS_SENDFILE, 1, 4, 0, 100) // 4 is the first free descriptor
	fine := call(unix.SYS_CLOSE, 999)
	fine.Fine, fine.Else = unix.EBADF, 2
	s.Add(fd, Call{Number: unix.SYS_WRITE, Args: []uint64{0, s.String(text), uint64(len(text))}, Kept: true}, read, s.say("not this"), copied)
	s.Add(fine, s.say("nor this"), s.say("nor that"), s.say("!"))
	s.Add(call(unix.SYS_WRITE, 1, Errors(), Slots))
	s.Add(exit(0))
	if out, _ := process(t, s); out != "kept!"+string(make([]byte, Slots)) {
		t.Errorf("%q", out)
	}
}

func TestAProgramIsExecuted(t *testing.T) {
	s := &Script{}
	s.Add(call(unix.SYS_EXECVE, s.String("/bin/sh"), s.Strings([]string{"sh", "-c", "echo $0 $1 $WORD", "x"}),
		s.Strings([]string{"WORD=word"})))
	s.Add(exit(1))
	if out, status := process(t, s); out != "x word\n" || status != 0 {
		t.Errorf("%q, status %d", out, status)
	}
}

func TestBadScripts(t *testing.T) {
	end := func(calls ...Call) *Script { s := &Script{}; s.Add(append(calls, exit(0))...); return s }
	large := end()
	large.Bytes(make([]byte, callsAt-dataAt))
	noExit := &Script{}
	noExit.Add(call(unix.SYS_GETPID))
	for name, s := range map[string]*Script{
		"empty": {}, "no exit": noExit, "too much data": large,
		"seven arguments": end(call(unix.SYS_GETPID, 1, 2, 3, 4, 5, 6, 7)),
		"a slot too far":  end(Call{Number: unix.SYS_GETPID, Slot: Slots}),
		"over the end":    end(Call{Number: unix.SYS_GETPID, Then: 2}),
		"far over it":     end(Call{Number: unix.SYS_GETPID, Else: 300}),
	} {
		if f, err := s.File(); !errors.Is(err, ErrScript) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

// The code contains fixed addresses.
func TestTheCodeKnowsItsPlaces(t *testing.T) {
	source, err := os.ReadFile("code_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"callsAt": callsAt, "errors ": dataAt} {
		m := regexp.MustCompile("#define " + name + ` *0x([0-9a-f]+)`).FindSubmatch(source)
		if m == nil {
			t.Fatalf("%s is not there", name)
		}
		if got, _ := strconv.ParseInt(string(m[1]), 16, 64); got != want {
			t.Errorf("%s is %#x, want %#x", name, got, want)
		}
	}
	b, err := code()
	if err != nil || len(b) > page-entry || bytes.Count(b, []byte{0x0f, 0x05}) != 1 {
		t.Errorf("%d bytes of code, %v: want one system call in it", len(b), err)
	}
}
