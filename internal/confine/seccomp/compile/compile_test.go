//go:build linux

package compile

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/seccomp"
)

// run evaluates a call with a list. Package bpf loads words in network order and the kernel in the host's order,
// so the data is laid out for package bpf.
func run(t testing.TB, text string, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	return machine(t, text)(arch, number, args...)
}

// machine returns a function that evaluates calls with a list.
func machine(t testing.TB, text string) func(arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	code, err := instructions([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	vm, err := bpf.NewVM(code)
	if err != nil {
		t.Fatal(err)
	}
	return func(arch, number uint32, args ...uint64) uint32 {
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data[offNumber:], number)
		binary.BigEndian.PutUint32(data[offArch:], arch)
		for i, a := range args {
			binary.BigEndian.PutUint32(data[offArgs+8*i:], uint32(a))
			binary.BigEndian.PutUint32(data[offArgs+8*i+4:], uint32(a>>32))
		}
		got, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(got)
	}
}

func TestCallsAreJudged(t *testing.T) {
	const (
		none  = "default kill\n"
		conds = "default kill\nread\nmmap arg2 & PROT_EXEC == 0\n" +
			"ioctl arg1 in KVM_RUN KVM_GET_REGS\nioctl arg1 == 7 and arg2 == 0 and arg0 in 3 4\nioctl arg0 == 9 -> 25\n" +
			"clone3 -> ENOSYS\nclone arg0 == CLONE_VM|CLONE_THREAD\n"
		deny = "default allow\nsocket\nioctl arg1 == 7\n"
	)
	const high = 1 << 32
	for _, c := range []struct {
		name, list string
		arch, nr   uint32
		args       []uint64
		want       uint32
	}{
		{"nothing is listed", none, archX8664, unix.SYS_READ, nil, seccomp.RetKill},
		{"a call without conditions", conds, archX8664, unix.SYS_READ, nil, seccomp.RetAllow},
		{"a call that is not listed", conds, archX8664, unix.SYS_SOCKET, nil, seccomp.RetKill},
		{"another architecture", conds, 0x40000003, unix.SYS_READ, nil, seccomp.RetKill},
		{"x32", conds, archX8664, x32 | unix.SYS_READ, nil, seccomp.RetKill},
		{"a negative number", conds, archX8664, 0xffffffff, nil, seccomp.RetKill},
		{"a bit that must be clear is", conds, archX8664, unix.SYS_MMAP, []uint64{0, 0, 3}, seccomp.RetAllow},
		{"and with others' upper half", conds, archX8664, unix.SYS_MMAP, []uint64{0, 0, high | 3}, seccomp.RetAllow},
		{"a bit that must be clear is set", conds, archX8664, unix.SYS_MMAP, []uint64{0, 0, 7}, seccomp.RetKill},
		{"the first of several values", conds, archX8664, unix.SYS_IOCTL, []uint64{0, 0xae80}, seccomp.RetAllow},
		{"the last of several values", conds, archX8664, unix.SYS_IOCTL, []uint64{0, 0x8090ae81}, seccomp.RetAllow},
		{"a value with an upper half", conds, archX8664, unix.SYS_IOCTL, []uint64{0, high | 0xae80}, seccomp.RetKill},
		{"all conditions of another line", conds, archX8664, unix.SYS_IOCTL, []uint64{4, 7, 0}, seccomp.RetAllow},
		{"not all of them", conds, archX8664, unix.SYS_IOCTL, []uint64{4, 7, 1}, seccomp.RetKill},
		{"not the last of them", conds, archX8664, unix.SYS_IOCTL, []uint64{5, 7, 0}, seccomp.RetKill},
		{"a line with an errno", conds, archX8664, unix.SYS_IOCTL, []uint64{9, 8, 0}, seccomp.RetErrno | 25},
		{"an errno", conds, archX8664, unix.SYS_CLONE3, nil, seccomp.RetErrno | uint32(unix.ENOSYS)},
		{"joined bits", conds, archX8664, unix.SYS_CLONE, []uint64{0x10100}, seccomp.RetAllow},
		{"one bit more", conds, archX8664, unix.SYS_CLONE, []uint64{0x10100 | unix.CLONE_NEWUSER}, seccomp.RetKill},
		{"denied", deny, archX8664, unix.SYS_SOCKET, nil, seccomp.RetKill},
		{"not denied", deny, archX8664, unix.SYS_READ, nil, seccomp.RetAllow},
		{"denied with conditions", deny, archX8664, unix.SYS_IOCTL, []uint64{0, 7}, seccomp.RetKill},
		{"not denied with others", deny, archX8664, unix.SYS_IOCTL, []uint64{0, 8}, seccomp.RetAllow},
		{"x32 where the default is to allow", deny, archX8664, x32 | unix.SYS_READ, nil, seccomp.RetKill},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := run(t, c.list, c.arch, c.nr, c.args...); got != c.want {
				t.Errorf("got %#x, want %#x", got, c.want)
			}
		})
	}
}

func TestListsThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "read\n", "default\n", "default deny\n", "default kill\ndefault kill\n", "default kill\nbogus\n",
		"default kill\nread\nread\n", "default kill\nread arg0\n", "default kill\nread arg6 == 0\n",
		"default kill\nread arg01 == 0\n", "default kill\nread 0 == 0\n", "default kill\nread arg0 == \n",
		"default kill\nread arg0 == 1 2\n", "default kill\nread arg0 & 0 == 0\n", "default kill\nread arg0 & 1 == 2\n",
		"default kill\nread arg0 & 3 in 1 2\n", "default kill\nread arg0 == 0x100000000\n", "default kill\nread arg0 == -1\n",
		"default kill\nread arg0 == NOBODY\n", "default kill\nread arg0 == 1 and\n", "default kill\nread and arg0 == 1\n",
		"default kill\nread arg0 == 1 arg1 == 2\n", "default kill\nread -> 0\n", "default kill\nread -> 4096\n",
		"default kill\nread ->\n", "default kill\nread arg0 in" + strings.Repeat(" 1", 65) + "\n",
		"default kill\n" + strings.Repeat("#\n", maxLines) + "read\n",
	} {
		if code, err := Program([]byte(text)); err == nil {
			t.Errorf("%.60q makes %d instructions", text, len(code)/8)
		}
	}
}

// A call with more alternatives than a conditional jump can skip is still skipped.
func TestLongListsAreCompiled(t *testing.T) {
	text := "default kill\n" + strings.Repeat("ioctl arg1 == 7 and arg2 == 8 and arg3 == 9\n", 60) + "read\n"
	if got := run(t, text, archX8664, unix.SYS_READ); got != seccomp.RetAllow {
		t.Errorf("behind them: %#x", got)
	}
	if got := run(t, text, archX8664, unix.SYS_IOCTL, 0, 7, 8, 9); got != seccomp.RetAllow {
		t.Errorf("one of them: %#x", got)
	}
	if got := run(t, text, archX8664, unix.SYS_IOCTL, 0, 7, 8, 10); got != seccomp.RetKill {
		t.Errorf("none of them: %#x", got)
	}
	if _, err := Program([]byte("default kill\n" + strings.Repeat("ioctl arg1 == 7 and arg2 == 8\n", 900))); err == nil {
		t.Error("a program that the kernel refuses is none")
	}
}

// FuzzList checks that a list is either rejected or compiles to a program that denies other architectures and
// always returns a value.
func FuzzList(f *testing.F) {
	f.Add("default kill\nread\nmmap arg2 & PROT_EXEC == 0 # why\nclone3 -> ENOSYS\n", uint32(9), uint64(7))
	f.Add("default allow\nioctl arg1 in 1 2 3 and arg0 == 1|2|0x40\n", uint32(16), uint64(2))
	f.Fuzz(func(t *testing.T, text string, number uint32, arg uint64) {
		if _, err := Program([]byte(text)); err != nil {
			return
		}
		if got := run(t, text, 0x40000003, number, arg, arg, arg); got != seccomp.RetKill {
			t.Errorf("another architecture's call is answered with %#x", got)
		}
		got := run(t, text, archX8664, number, arg, arg, arg)
		if got != seccomp.RetKill && got != seccomp.RetAllow && got&^0xfff != seccomp.RetErrno {
			t.Errorf("answered with %#x", got)
		}
	})
}

// judge returns a list's answer for a call by evaluating it line by line.
func judge(l *list, number uint32, args [6]uint64) uint32 {
	listed, other := uint32(seccomp.RetAllow), uint32(seccomp.RetKill)
	if l.allow {
		listed, other = other, listed
	}
	for _, c := range l.calls {
		if c.number != number {
			continue
		}
		for _, a := range c.cases {
			if !slices.ContainsFunc(a.when, func(c condition) bool { return !c.satisfied(args) }) {
				if a.errno != 0 {
					return seccomp.RetErrno | a.errno
				}
				return listed
			}
		}
	}
	return other
}

func (c condition) satisfied(args [6]uint64) bool {
	v := args[c.arg]
	if c.mask != 0 {
		return slices.Contains(c.values, uint32(v)&c.mask)
	}
	return v>>32 == 0 && slices.Contains(c.values, uint32(v))
}

// The binary search gives the same answer as the lists for each possible number, with arguments from the lists
// and others.
func TestEachNumberIsJudgedAsTheListsSay(t *testing.T) {
	paths, err := filepath.Glob("../lists/*.list")
	if err != nil || len(paths) != 4 {
		t.Fatalf("%d lists, %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		values := map[uint32][]uint64{}
		for _, c := range l.calls {
			for _, a := range c.cases {
				for _, w := range a.when {
					for _, v := range w.values {
						values[c.number] = append(values[c.number], uint64(v))
					}
				}
			}
		}
		vm := machine(t, string(text))
		for number := range uint32(600) {
			for _, v := range append(values[number], 0, 1, 4, 1<<32, 1<<63-1) {
				for _, args := range [][6]uint64{{v, v, v, v, v, v}, {0, v, 0, 0, 0, 0}, {v, 0, 0, 0, 0, 0}, {0, 1, v, 0, 0, 0}, {0, 6, v, 0, 0, 0}} {
					if got, want := vm(archX8664, number, args[:]...), judge(l, number, args); got != want {
						t.Fatalf("%s: call %d with %#x: %#x, want %#x", path, number, args, got, want)
					}
				}
			}
		}
	}
}
