// Package vmdebug reads the state of a VM's process from the daemon's run directory and from /proc,
// without the daemon. It only reads files, without the VMM, so it works if either hangs. The
// trap: the parts are read one after the other while the VM runs, so they may not fit each other.
package vmdebug

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Names in a VM's run directory. A test compares them with the daemon's.
const (
	vmsName        = "vm"
	vmJournal      = "vm.json"
	sandboxJournal = "sandbox.json"
	vmmLog         = "vmm.log"
)

// maxJournal limits the journals read, in bytes, and maxLog the end of the VMM's log.
const (
	maxJournal = 1 << 20
	maxLog     = 4 << 10
)

// VM is the state of a VM's process.
type VM struct {
	Sandbox string   `json:"sandbox"`        // its ID
	Dir     string   `json:"dir"`            // its run directory
	PID     int      `json:"pid"`            // of the VMM
	Running bool     `json:"running"`        // the process exists
	Pausing bool     `json:"pausing"`        // its guest is stopped for a pause
	CPUs    int      `json:"vcpus"`          // of the guest
	Memory  int      `json:"memory_mib"`     // of the guest
	Group   string   `json:"cgroup"`         // empty if it has none
	Threads []Thread `json:"threads"`        // of the VMM, in the order of their IDs
	Queues  []Queue  `json:"queues"`         // notifications not taken yet
	Exits   []Count  `json:"exits"`          // KVM's counters that are not 0; empty without access to debugfs
	Log     string   `json:"log,omitempty"`  // the end of the VMM's log
	Note    string   `json:"note,omitempty"` // the first part that cannot be read, and why
}

// Thread is a thread of a VMM.
type Thread struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`            // R running, S sleeping, D in the kernel without interruption, T stopped
	Wait  string `json:"wait,omitempty"`   // the kernel's function it waits in, or the system call's number
	Ticks uint64 `json:"cpu_centiseconds"` // CPU time, user and system
}

// Queue is an event descriptor with notifications that the VMM has not taken.
type Queue struct {
	FD    int    `json:"fd"`
	Count uint64 `json:"count"`
}

// Count is a counter of KVM.
type Count struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Host is the file systems to read. Tests use other directories.
type Host struct {
	Run  string // the daemon's run directory
	Proc string // /proc
	KVM  string // /sys/kernel/debug/kvm
}

// Read returns the state of the VM of a sandbox. If no VM in the run directory has the sandbox, it
// returns fs.ErrNotExist.
func (h Host) Read(id string) (VM, error) {
	dirs, err := os.ReadDir(filepath.Join(h.Run, vmsName))
	if err != nil {
		return VM{}, err
	}
	for _, d := range dirs {
		dir := filepath.Join(h.Run, vmsName, d.Name())
		vm, ok, err := journals(dir, id)
		if err != nil || !ok {
			if errors.Is(err, fs.ErrPermission) {
				return VM{}, err
			}
			continue // a VM that is being made or removed
		}
		h.fill(&vm)
		return vm, nil
	}
	return VM{}, fmt.Errorf("sandbox %s has no VM in %s: %w", id, h.Run, fs.ErrNotExist)
}

// journals reads a VM's journals, if they are of the sandbox.
func journals(dir, id string) (vm VM, ok bool, err error) {
	var s struct {
		Dir     string              `json:"dir"`
		Info    struct{ ID string } `json:"info"`
		Pausing bool                `json:"pausing"`
	}
	if err := readJSON(filepath.Join(dir, sandboxJournal), &s); err != nil {
		return vm, false, err
	}
	if s.Info.ID != id || s.Dir != "" && s.Dir != filepath.Base(dir) {
		return vm, false, nil
	}
	var v struct {
		Ref   struct{ PID int } `json:"ref"`
		Shape struct {
			CPUs      int `json:"vcpus"`
			MemoryMiB int `json:"memory_mib"`
		} `json:"shape"`
		Group string `json:"group"`
	}
	if err := readJSON(filepath.Join(dir, vmJournal), &v); err != nil {
		return vm, false, err
	}
	return VM{Sandbox: id, Dir: dir, PID: v.Ref.PID, Pausing: s.Pausing, CPUs: v.Shape.CPUs, Memory: v.Shape.MemoryMiB,
		Group: v.Group}, true, nil
}

func readJSON(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return json.NewDecoder(io.LimitReader(f, maxJournal)).Decode(v)
}

// fill reads the parts that may be missing. The first failure is noted.
func (h Host) fill(vm *VM) {
	note := func(part string, err error) {
		if err != nil && vm.Note == "" {
			vm.Note = part + ": " + err.Error()
		}
	}
	var err error
	proc := filepath.Join(h.Proc, strconv.Itoa(vm.PID))
	if _, err := os.Stat(proc); err == nil {
		vm.Running = true
		vm.Threads, err = threads(proc)
		note("threads", err)
		vm.Queues, err = queues(proc)
		note("queues", err)
		vm.Exits, err = h.exits(vm.PID)
		note("exits", err)
	}
	vm.Log, err = tail(filepath.Join(vm.Dir, vmmLog))
	note("log", err)
}

func threads(proc string) ([]Thread, error) {
	names, err := numbers(filepath.Join(proc, "task"))
	var all []Thread
	for _, id := range names {
		dir := filepath.Join(proc, "task", strconv.Itoa(id))
		t, err := threadOf(dir)
		if err != nil {
			continue // it has ended
		}
		t.ID = id
		t.Wait = waitOf(dir)
		all = append(all, t)
	}
	return all, err
}

// threadOf parses a thread's stat, proc(5). The name is in parentheses and may contain any byte.
func threadOf(dir string) (Thread, error) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Thread{}, err
	}
	_, rest, _ := strings.Cut(string(b), "(")
	end := strings.LastIndex(rest, ")")
	if end < 0 {
		return Thread{}, fmt.Errorf("%s/stat: no name", dir)
	}
	f := strings.Fields(rest[end+1:])
	if len(f) < 13 {
		return Thread{}, fmt.Errorf("%s/stat: %d fields", dir, len(f))
	}
	user, _ := strconv.ParseUint(f[11], 10, 64)
	system, _ := strconv.ParseUint(f[12], 10, 64)
	return Thread{Name: printable(rest[:end]), State: f[0], Ticks: user + system}, nil
}

// waitOf returns the kernel's function a thread waits in, otherwise its system call.
func waitOf(dir string) string {
	if b, err := os.ReadFile(filepath.Join(dir, "wchan")); err == nil && len(b) > 0 && string(b) != "0" {
		return string(b)
	}
	b, _ := os.ReadFile(filepath.Join(dir, "syscall"))
	if f := strings.Fields(string(b)); len(f) > 0 && f[0] != "running" && f[0] != "-1" {
		return "syscall " + f[0]
	}
	return ""
}

// queues lists the event descriptors with a count, proc_pid_fdinfo(5).
func queues(proc string) ([]Queue, error) {
	fds, err := numbers(filepath.Join(proc, "fdinfo"))
	var all []Queue
	for _, fd := range fds {
		b, err := os.ReadFile(filepath.Join(proc, "fdinfo", strconv.Itoa(fd)))
		if err != nil {
			continue // it was closed
		}
		_, after, ok := strings.Cut(string(b), "eventfd-count:")
		if !ok {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimSpace(after), "\n")
		if n, err := strconv.ParseUint(strings.TrimSpace(first), 16, 64); err == nil && n > 0 {
			all = append(all, Queue{FD: fd, Count: n})
		}
	}
	return all, err
}

// exits reads KVM's counters of a VM, in the directory PID-FD of debugfs.
func (h Host) exits(pid int) ([]Count, error) {
	dirs, err := filepath.Glob(filepath.Join(h.KVM, fmt.Sprintf("%d-*", pid)))
	if err != nil || len(dirs) == 0 {
		return nil, err
	}
	files, err := os.ReadDir(dirs[0])
	var all []Count
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dirs[0], f.Name()))
		if err != nil {
			continue // a directory of a vCPU, or a histogram
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 {
			all = append(all, Count{Name: f.Name(), Value: n})
		}
	}
	return all, err
}

func tail(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > maxLog {
		_, _ = f.Seek(-maxLog, io.SeekEnd)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxLog))
	return strings.TrimSpace(printable(string(b))), err
}

// printable replaces characters that could control a terminal: a guest's texts may be in the log.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// numbers returns the numeric names in a directory, in order.
func numbers(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	var all []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, err
}
