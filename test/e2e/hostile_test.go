package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/confine/jail/jailtest"
	"github.com/forkd/forkd/internal/leaf/failpoint"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// underVM are attempts on a thread of a VMM with its filters: one of each kind, and all that the
// filters allow. The whole table is tried in package spawner/client, without a VM.
var underVM = []string{
	"writing what it may read", "cutting what it may read", "a hole in what it may read",
	"mapping what it may read for writing", "all descriptors that there can be",

	"a file of the host", "a lock on what it may read", "a link to what it has", "a process", "its own program",
	"executable memory", "tracing a process", "a process's memory", "a signal to a process", "a socket by its path",
	"TCP to the host", "a vsock of the host", "a mount", "a namespace by a descriptor", "another user",
	"a filter with a listener", "more descriptors", "a BPF map", "io_uring", "userfaultfd", "a slot of memory",
	"a descriptor by /proc", "a queued signal", "another peer of its socket", "a program on its socket",
	"a userfaultfd of the device",
}

// underVCPU are attempts on the thread of a vCPU.
var underVCPU = []string{
	"a file of the host", "a lock on what it may read", "a process", "a signal to a process", "TCP to the host",
	"a mount", "executable memory", "another VM", "all descriptors that there can be",
}

// The real VMM, built to be hostile, tries all attempts while its guest runs. First it runs without
// a filter of system calls, with the jail as the only protection. Then it runs with all filters,
// and each attempt ends it.
func TestHostileVMM(t *testing.T) {
	kvmtest.Require(t)
	d := secondDaemon(t, "--jail", "strict", "--vmm-seccomp", "off")
	hostile := listenHostile(t, filepath.Join(d.Dir, "hostile"))
	d.Env = hostile.environ()
	if err := errors.Join(os.Remove(d.VMM()), link(kvmtest.Fixture(t, "forkd-vmm-hostile"), d.VMM())); err != nil {
		t.Fatal(err)
	}
	if err := linkedImage(t, d.images(), "box"); err != nil {
		t.Fatal(err)
	}
	d.start()
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "parent", Image: "box"}, nil); err != nil {
		t.Fatal(err)
	}
	sibling := d.forkOf("parent", 1)[0]
	d.sh(sibling.ID, "echo sibling > /root/mark")
	w := d.worldOf(sibling)

	d.sub("the jail alone", func(t *testing.T) { d.triesAll(hostile, w) })
	d.sub("its sibling", func(t *testing.T) {
		if got := d.sh(sibling.ID, "cat /root/mark"); got != "sibling" {
			t.Errorf("it says %q", got)
		}
		d.kill(sibling.ID)
	})

	if state := d.end(syscall.SIGTERM); state.ExitCode() != 0 {
		t.Fatalf("the daemon ended with %s", state)
	}
	d.Flags = []string{"--jail", "strict"}
	d.start()
	w.Socket = filepath.Join(d.Run, "forkd.sock") // the daemon's socket
	d.sub("filters of a VMM", func(t *testing.T) { d.triesUnderVM(hostile, w) })
	d.sub("filters of a vCPU", func(t *testing.T) { d.triesUnderVCPU(hostile, w) })
	d.sub("afterwards", func(t *testing.T) { // no other sandbox is affected
		good := d.forkOf("parent", 1)[0]
		res := d.branch(good.ID, api.BranchRequest{Tag: "after", Mode: api.BranchLive})
		if res.Mechanism != "wp-async" {
			t.Errorf("a live branch found writes by %q", res.Mechanism)
		}
		d.sh(good.ID, "true")
	})
}

// triesAll makes one VMM try all attempts. Afterwards the VMM must still work.
func (d *daemon) triesAll(h *hostileVMMs, w jailtest.World) {
	d.t.Helper()
	sb := d.forkOf("parent", 1)[0]
	conn := h.of(d.t, *sb.PID)
	var names []string
	for _, a := range jailtest.Attempts() {
		names = append(names, a.Name)
	}
	got, err := h.order(conn, jailtest.Order{World: w, Try: names})
	if err != nil {
		d.t.Fatal(err)
	}
	count := map[string]int{}
	for _, name := range names {
		want := jailtest.Outcomes[name].Alone
		if rootless := jailtest.Outcomes[name].Rootless; rootless != "" && harness.Ordinary() != nil {
			want = rootless
		}
		if strings.HasPrefix(name, "all processes") && pidsAreBounded(*sb.PID) {
			want = "EAGAIN"
		}
		if !jailtest.Is(got[name], want) {
			d.t.Errorf("%s: %q, want %s", name, got[name], want)
		}
		count[got[name]]++
	}
	d.t.Logf("%d attempts: %v", len(names), count)
	if res := d.branch(sb.ID, api.BranchRequest{Tag: "hostile", Mode: api.BranchLive}); res.Mechanism != "wp-async" {
		d.t.Errorf("its live branch found writes by %q", res.Mechanism)
	}
	if got := d.sh(sb.ID, "echo hello"); got != "hello" {
		d.t.Errorf("its guest says %q", got)
	}
}

// triesUnderVM tries each attempt in a new VMM, or in the last one if it has survived.
func (d *daemon) triesUnderVM(h *hostileVMMs, w jailtest.World) {
	d.t.Helper()
	var sb *api.SandboxInfo
	killed := 0
	for _, name := range underVM {
		if sb == nil {
			sb = &d.forkOf("parent", 1)[0]
		}
		got, err := h.order(h.of(d.t, *sb.PID), jailtest.Order{World: w, Try: []string{name}})
		want := jailtest.Outcomes[name].VM
		switch {
		case want != "" && (err != nil || !jailtest.Is(got[name], want)):
			d.t.Errorf("%s: %q, %v, want %s", name, got[name], err, want)
		case want == "" && err == nil:
			d.t.Errorf("%s: %q, and it was not killed", name, got[name])
		}
		if err == nil {
			continue
		}
		killed++
		eventually(d.t, "sandbox that failed by "+name, func() bool {
			info, err := d.c.Sandbox(d.t.Context(), sb.ID)
			if err != nil {
				d.t.Fatal(err)
			}
			if info.Status == api.SandboxFailed && !strings.Contains(info.Reason, "killed by its filter of system calls") {
				d.t.Errorf("%s: the reason is %q", name, info.Reason)
			}
			return info.Status == api.SandboxFailed
		})
		d.kill(sb.ID)
		sb = nil
	}
	d.t.Logf("%d of %d attempts ended the VMM", killed, len(underVM))
}

// triesUnderVCPU tries each attempt on a vCPU's thread before the VMM has a guest, so the VMM ends
// during its fork.
func (d *daemon) triesUnderVCPU(h *hostileVMMs, w jailtest.World) {
	d.t.Helper()
	n := 1
	for _, name := range underVCPU {
		h.setFirst(jailtest.Order{World: w, Try: []string{name}})
		res, err := d.c.Fork(d.t.Context(), api.CreateSandboxesRequest{SnapshotTag: "parent", N: &n})
		text := fmt.Sprint(err)
		for _, sb := range res.Failed() {
			text += sb.Error
		}
		if !strings.Contains(text, "killed by its filter of system calls") {
			d.t.Errorf("%s: the fork says %q", name, text)
		}
		for _, sb := range res.OK() {
			d.t.Errorf("%s: %s runs", name, sb.ID)
			d.kill(sb.ID)
		}
	}
	h.setFirst(jailtest.Order{})
}

// worldOf returns the targets of the attempts: this process, the daemon's files, a sibling's
// socket.
func (d *daemon) worldOf(sibling api.SandboxInfo) jailtest.World {
	t := d.t
	t.Helper()
	w := jailtest.World{
		PID: os.Getpid(), Abstract: filepath.Base(d.Dir), File: filepath.Join(d.Dir, "daemon.log"),
		Socket: filepath.Join(d.VMDir(sibling.ID), "vsock.sock"),
	}
	if st, err := os.Stat(w.Socket); err != nil || st.Mode()&os.ModeSocket == 0 {
		t.Fatalf("the sibling's socket: %v", err)
	}
	for network, address := range map[string]string{"unix": "@" + w.Abstract, "tcp": "127.0.0.1:0"} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			w.TCP = a.Port
		}
	}
	return w
}

// pidsAreBounded reports whether a process is in a control group with a process limit.
func pidsAreBounded(pid int) bool {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	_, path, _ := strings.Cut(strings.TrimSpace(string(b)), "::")
	most, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "pids.max"))
	return err == nil && strings.TrimSpace(string(most)) != "max"
}

// hostileVMMs is the test's end of the connections of hostile VMMs, which use the failpoints'
// socket.
type hostileVMMs struct {
	path string

	mu    sync.Mutex // guards the fields below
	first jailtest.Order
	conns map[string]net.Conn // by the name of the VMM's descriptor
}

func listenHostile(t *testing.T, path string) *hostileVMMs {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostileVMMs{path: path, conns: map[string]net.Conn{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { h.greet(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
		for _, c := range h.conns {
			c.Close()
		}
	})
	return h
}

func (h *hostileVMMs) environ() []string { return []string{failpoint.Variable + "=" + h.path} }

// greet answers a VMM's hello, or lets a step of the daemon continue.
func (h *hostileVMMs) greet(c net.Conn) {
	b := make([]byte, jailtest.MaxMessage)
	n, err := c.Read(b)
	var hello jailtest.Hello
	if err != nil || json.Unmarshal(b[:n], &hello) != nil {
		_, _ = c.Write([]byte{1})
		c.Close()
		return
	}
	end := fmt.Sprintf("socket:[%d]", hello.Socket)
	h.mu.Lock()
	first := h.first
	if old := h.conns[end]; old != nil {
		old.Close() // its VMM has ended, and the kernel reused the inode number
	}
	h.conns[end] = c
	h.mu.Unlock()
	if b, err = json.Marshal(first); err == nil {
		_, _ = c.Write(b) // if the VMM has ended meanwhile, its order fails
	}
}

func (h *hostileVMMs) setFirst(o jailtest.Order) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first = o
}

// of returns the connection to a VMM. The VMM has sent its hello before it was ready.
func (h *hostileVMMs) of(t *testing.T, pid int) net.Conn {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fd := range names(dir) {
		if end, err := os.Readlink(filepath.Join(dir, fd)); err == nil && h.conns[end] != nil {
			return h.conns[end]
		}
	}
	t.Fatalf("VMM %d has not said hello", pid)
	return nil
}

// order makes a VMM try an attempt. It returns an error if the VMM ends.
func (h *hostileVMMs) order(c net.Conn, o jailtest.Order) (got map[string]string, err error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(b); err != nil {
		return nil, err
	}
	b = make([]byte, jailtest.MaxMessage)
	n, err := c.Read(b)
	if err != nil {
		return nil, err
	}
	return got, json.Unmarshal(b[:n], &got)
}
