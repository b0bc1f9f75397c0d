//go:build linux

package seccomp_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/confine/seccomp/compile"
)

var recorded = flag.String("recorded", "", "directory that scripts/record-syscalls.sh has written: add to lists/used.txt")

// entry matches a line of a histogram: a thread, and a system call or an ioctl request.
var entry = regexp.MustCompile(`common_pid: (\S+) *\[ *(\d+)\], (?:id|cmd): *(\w+) \}`)

// seen is a call of one thread.
type seen struct {
	program, thread string
	number          uint32
}

func readHistogram(t *testing.T, path string) (all []seen) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range entry.FindAllStringSubmatch(string(text), -1) {
		base := 10
		if filepath.Base(path) == "requests" {
			base = 16
		}
		n, err := strconv.ParseUint(m[3], base, 64)
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		all = append(all, seen{m[1], m[2], uint32(n)})
	}
	return all
}

// TestRecord adds the calls counted by a machine's kernel to lists/used.txt. Calls of a vCPU's thread count for
// both of its filters.
func TestRecord(t *testing.T) {
	if *recorded == "" {
		return
	}
	calls := readHistogram(t, filepath.Join(*recorded, "calls"))
	requests := readHistogram(t, filepath.Join(*recorded, "requests"))
	vcpus := map[string]bool{}
	for _, r := range requests {
		if compile.RequestName(r.number) == "KVM_RUN" {
			vcpus[r.thread] = true
		}
	}
	used := madeCalls(t)
	note := func(s seen, call string) {
		switch {
		case s.program == "forkd-net":
			used["net "+call] = true
		case vcpus[s.thread]:
			used["vcpu "+call], used["vm "+call] = true, true
		default:
			used["vm "+call] = true
		}
	}
	for _, c := range calls {
		if name := compile.CallName(c.number); name != "" && name != "ioctl" {
			note(c, name)
		}
	}
	for _, r := range requests {
		if name := compile.RequestName(r.number); name != "" {
			note(r, "ioctl "+name)
		}
	}
	text := "# What the suites did, by the filter that left it. Made by scripts/record-syscalls.sh (docs/inside/vmm.md).\n" +
		strings.Join(slices.Sorted(maps.Keys(used)), "\n") + "\n"
	if err := os.WriteFile("lists/used.txt", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%d threads of vCPUs\n", len(vcpus))
}
