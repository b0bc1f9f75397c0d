package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/idmap"
	"github.com/forkd/forkd/internal/confine/jail"
	"github.com/forkd/forkd/internal/confine/jail/jailtest"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/confine/selfbox"
	"github.com/forkd/forkd/internal/leaf/vmspec"
	"github.com/forkd/forkd/internal/testing/statictest"
	"github.com/forkd/forkd/internal/vm/spawner/wire"
	vmclient "github.com/forkd/forkd/internal/vm/vmctl/client"
	vmwire "github.com/forkd/forkd/internal/vm/vmctl/wire"
)

// program is this test binary, which is also forkd-spawn and the VMM.
const program = "/proc/self/exe"

// limit is the time limit for fast operations. It is long to suit loaded machines.
const limit = time.Minute

func openSpawner(t testing.TB, strict bool) *Spawner {
	t.Helper()
	if statictest.Linked() {
		t.Skip("the test is linked dynamically, and there is no linker in a jail: CGO_ENABLED=0")
	}
	s, err := Open(t.Context(), Config{Binary: program, Strict: strict, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// inside is a jailed process and the connection to it.
type inside struct {
	vmclient.Started
	conn    net.Conn
	console string
}

// launch starts an inmate with a VMM's descriptors, and without system call filters.
func launch(t testing.TB, s vmclient.Starter) (*inside, error) {
	t.Helper()
	return launchWith(t, s, vmclient.Launch{Start: vmwire.Start{Seccomp: seccomp.Off}})
}

// launchWith starts one with additional settings.
func launchWith(t testing.TB, s vmclient.Starter, more vmclient.Launch) (*inside, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "jail")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	in := &inside{console: filepath.Join(dir, "console")}
	console, err := os.Create(in.console)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	path := filepath.Join(dir, "control")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	control, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	if in.conn, err = net.Dial("unix", path); err != nil { // like Spawn, before there is a process
		t.Fatal(err)
	}
	t.Cleanup(func() { in.conn.Close() })
	path = filepath.Join(dir, "lent")
	if err := os.WriteFile(path, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	lent, err := os.Open(path) // files of others are open for reading in a VMM
	if err != nil {
		t.Fatal(err)
	}
	defer lent.Close()
	more.Start.Shape = vmspec.Shape{MemoryMiB: 64, VCPUs: 1}
	in.Started, err = s.Start(t.Context(), vmclient.Launch{
		Binary: program, Start: more.Start, Failpoints: more.Failpoints,
		Null: null, Log: os.Stderr, KVM: null, Control: control, Vsock: lent, Console: console,
	})
	if err == nil {
		t.Cleanup(func() {
			_ = signalKill(in.PIDFD)
			in.PIDFD.Close()
		})
	}
	return in, err
}

func mustLaunch(t testing.TB, s vmclient.Starter) *inside {
	t.Helper()
	in, err := launch(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// tell sends it an order.
func (in *inside) tell(t testing.TB, o order) {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	in.conn.SetDeadline(time.Now().Add(limit))
	if _, err := in.conn.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}
}

// ask sends it an order, and returns the results.
func (in *inside) ask(t testing.TB, o order) (a answers) {
	t.Helper()
	in.tell(t, o)
	return in.answer(t)
}

// answer reads the answer to an order.
func (in *inside) answer(t testing.TB) (a answers) {
	t.Helper()
	line, err := bufio.NewReader(in.conn).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// world returns targets on the host for the attempts.
func world(t *testing.T) jailtest.World {
	t.Helper()
	victim := exec.Command("sleep", "600")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		victim.Process.Kill()
		victim.Wait()
	})
	w := jailtest.World{PID: victim.Process.Pid}
	dir, err := os.MkdirTemp("", "jail")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.Socket, w.Abstract, w.File = filepath.Join(dir, "socket"), filepath.Base(dir), filepath.Join(dir, "file")
	if err := os.WriteFile(w.File, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for network, address := range map[string]string{"unix": "@" + w.Abstract, "unix ": w.Socket, "tcp": "127.0.0.1:0"} {
		l, err := net.Listen(strings.TrimSpace(network), address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if network == "tcp" {
			w.TCP = l.Addr().(*net.TCPAddr).Port
		}
	}
	return w
}

func TestWhatAnInmateHas(t *testing.T) {
	s := openSpawner(t, os.Geteuid() == 0)
	in := mustLaunch(t, s)
	in.ask(t, order{World: world(t)}) // it has closed the files it closes at its start
	proc := fmt.Sprintf("/proc/%d/", in.PID)
	status := statusOf(t, proc)
	for name, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1",
	} {
		if status[name] != want {
			t.Errorf("%s is %q, want %q", name, status[name], want)
		}
	}
	if ownUsers() {
		uids, gids := userRanges(t)
		uid, err := strconv.Atoi(strings.Fields(status["Uid"])[0])
		gid := int(gids) + uid - int(uids)
		same := func(id int) string { return strings.Repeat(fmt.Sprint(id)+"\t", 4) }
		if err != nil || uint32(uid) < uids || uint32(uid) >= uids+jail.Users || status["Uid"]+"\t" != same(uid) ||
			status["Gid"]+"\t" != same(gid) {
			t.Errorf("its user is %q, its group %q", status["Uid"], status["Gid"])
		}
		if status["Groups"] != "" {
			t.Errorf("its groups are %q", status["Groups"])
		}
	}
	if ids := strings.Fields(status["NSpid"]); len(ids) < 2 || ids[len(ids)-1] != "1" {
		t.Errorf("its process ids are %q", ids)
	}
	namespaces(t, s, proc)
	var open []string
	for fd, to := range descriptors(t, in.PID) {
		if fd > 6 { // lower ones are as given
			open = append(open, strings.TrimRight(to, "0123456789[]"))
		}
	}
	slices.Sort(open)
	want := []string{"/dev/userfaultfd",
		// of a /proc that is no longer mounted where it is
		fmt.Sprintf("/%d/pagemap", in.PID),
		"anon_inode:[eventfd", "anon_inode:[eventpoll", "socket:", "socket:"} // the listener in Go's hands, a connection
	if device, err := os.OpenFile(userfaultfd, os.O_RDWR, 0); err != nil {
		want = slices.DeleteFunc(want, func(s string) bool { return s == userfaultfd })
	} else {
		device.Close()
	}
	slices.Sort(want)
	if !slices.Equal(open, want) {
		t.Errorf("beside those it was given, its descriptors are %q, want %q", open, want)
	}
	if entries, err := os.ReadDir(proc + "root/"); err != nil || len(entries) != 0 {
		t.Errorf("its root has %v, %v", entries, err)
	}
	mounts := string(must(os.ReadFile(proc + "mounts")))
	if strings.Count(mounts, "\n") > 2 || !strings.Contains(mounts, "tmpfs ro,") {
		t.Errorf("it has the mounts\n%s", mounts)
	}
	if score := strings.TrimSpace(string(must(os.ReadFile(proc + "oom_score_adj")))); score != "500" {
		t.Errorf("its oom_score_adj is %s", score)
	}
	limits := string(must(os.ReadFile(proc + "limits")))
	for _, want := range []string{`open files +2048 +2048 `, `core file size +0 +0 `, `locked memory +0 +0 `, `file size +[0-9]+ +[0-9]+ `} {
		if !regexp.MustCompile(want).MatchString(limits) {
			t.Errorf("its limits have no %q:\n%s", want, limits)
		}
	}
	if exe, err := os.Readlink(proc + "exe"); err != nil || exe != must(os.Executable()) {
		t.Errorf("its program is %q, %v", exe, err)
	}
}

// namespaces compares an inmate's with the host's, and its network with a sibling's.
func namespaces(t *testing.T, s *Spawner, proc string) {
	t.Helper()
	sibling := mustLaunch(t, s)
	for _, name := range []string{"mnt", "pid", "ipc", "uts", "cgroup", "net", "user"} {
		ours, its := must(os.Readlink("/proc/self/ns/"+name)), must(os.Readlink(proc+"ns/"+name))
		other := must(os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", sibling.PID, name)))
		if shared := name == "user" && os.Geteuid() == 0; (its == ours) != shared {
			t.Errorf("its %s namespace is %s, the host's %s", name, its, ours)
		}
		if shared := name == "net" || name == "user" && ownUsers(); (its == other) != shared {
			t.Errorf("its %s namespace is %s, a sibling's %s", name, its, other)
		}
	}
	if ownUsers() && statusOf(t, proc)["Uid"] == statusOf(t, fmt.Sprintf("/proc/%d/", sibling.PID))["Uid"] {
		t.Error("two inmates have one user")
	}
	devices := string(must(os.ReadFile(proc + "net/dev")))
	if strings.Count(devices, ":") != 1 || !strings.Contains(devices, "lo:") {
		t.Errorf("its network has\n%s", devices)
	}
}

// descriptors returns a process's descriptors and their targets. If the process is a mapped user,
// only that user may list them, but the owner of its namespace can get them.
func descriptors(t *testing.T, pid int) map[int]string {
	t.Helper()
	all := map[int]string{}
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		all[must(strconv.Atoi(e.Name()))], _ = os.Readlink(dir + e.Name())
	}
	if err == nil {
		return all
	}
	process := must(unix.PidfdOpen(pid, 0))
	defer unix.Close(process)
	for fd := range 1024 {
		got, err := unix.PidfdGetfd(process, fd, 0)
		if err == unix.EBADF {
			continue
		}
		if err != nil {
			t.Fatalf("descriptor %d: %v", fd, err)
		}
		all[fd], _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", got))
		unix.Close(got)
	}
	return all
}

// ownUsers reports whether each inmate is its own user to the host.
func ownUsers() bool { return OwnUsers() == nil }

// userRanges returns the starts of the host's ids of inmates.
func userRanges(t *testing.T) (uids, gids uint32) {
	t.Helper()
	if os.Geteuid() == 0 {
		return jail.First, jail.First
	}
	uids, err := idmap.First(idmap.Users)
	if err != nil {
		t.Fatal(err)
	}
	if gids, err = idmap.First(idmap.Groups); err != nil {
		t.Fatal(err)
	}
	return uids, gids
}

func statusOf(t *testing.T, proc string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(string(must(os.ReadFile(proc + "status")))) {
		name, value, _ := strings.Cut(line, ":")
		all[name] = strings.TrimSpace(value)
	}
	return all
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The same as a user without privileges, if this test has them.
func TestWithoutPrivileges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the other tests are without privileges already")
	}
	const nobody = 65534
	cmd := exec.Command(program, "-test.run", "Inmate|Ends|Killed", "-test.v")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// mappedChecked is logged by TestUsersAreMapped where users are mapped.
const mappedChecked = "mapped users were checked"

// The same as a user with an entry in /etc/subuid, where newuidmap exists.
func TestWithMappedUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can name a user in /etc/subuid")
	}
	if _, err := exec.LookPath(mapUsers); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(program, "-test.run", "Inmate|Ends|Killed|AreMapped", "-test.v")
	cmd.Args[0], cmd.Dir = asMapped, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), mappedChecked) {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// The same as root of a container with Docker's capabilities. A VMM that such a root could not take
// over as another user must not become one.
func TestWithFewCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has capabilities")
	}
	// No inmate makes attempts: without a PID namespace they would affect the host's processes.
	cmd := exec.Command(program, "-test.run", "Ends|VMMInAJail", "-test.v")
	cmd.Args[0], cmd.Dir = asContained, "/"
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v", err)
	}
	t.Logf("%s", out)
}

// becomeContained drops the privileges that Docker drops by default.
func becomeContained() error {
	docker := selfbox.Of(unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
		unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT, unix.CAP_MKNOD,
		unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP)
	if err := selfbox.Keep(docker, docker); err != nil {
		return err
	}
	return unix.Exec(program, append([]string{"client.test"}, os.Args[1:]...), os.Environ())
}

// becomeMapped turns this process into the user nobody, with a range in its own /etc.
func becomeMapped() error {
	const nobody = 65534
	etc, err := os.MkdirTemp("", "etc")
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n", "group": "root:x:0:\nnogroup:x:65534:\n",
		"subuid": "other:100000:65536\nnobody:300000:10\nnobody:400000:65536\n", "subgid": "65534:600000:70000\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Chmod(etc, 0o755), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(etc, "/etc", "", unix.MS_BIND, "")); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		return err
	}
	return unix.Exec(program, append([]string{"client.test"}, os.Args[1:]...), os.Environ())
}

func TestUsersAreMapped(t *testing.T) {
	if os.Geteuid() == 0 || OwnUsers() != nil {
		return // it is a part of TestWithMappedUsers, which reads the log at its end
	}
	uids, gids := userRanges(t)
	if uids != 400000 || gids != 600000 {
		t.Errorf("the ranges begin at %d and %d", uids, gids)
	}
	if r, err := Probe(t.Context(), program); err != nil || r.Users != nil {
		t.Errorf("the report is %v, %v", r.Users, err)
	}
	s := openSpawner(t, true) // strict: all parts must be present
	if status := statusOf(t, fmt.Sprintf("/proc/%d/", s.PID())); !strings.HasPrefix(status["Uid"], fmt.Sprint(os.Geteuid())) {
		t.Errorf("forkd-spawn is user %q", status["Uid"])
	}
	t.Log(mappedChecked)
}

// A process with unmappable users is not started.
func TestUsersThatCannotBeMapped(t *testing.T) {
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	cmd, err := startMapped(mapping{newuidmap: "/bin/false", newgidmap: "/bin/false"}, program, theirs)
	if err == nil {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatal("it runs without users")
	}
	t.Log(err)
}

func TestHowItEnds(t *testing.T) {
	s := openSpawner(t, false)
	in := mustLaunch(t, s)
	in.tell(t, order{Exit: 7})
	if how := in.Ended(); how != "exit status 7" {
		t.Errorf("it ended with %q", how)
	}
	in = mustLaunch(t, s)
	if err := signalKill(in.PIDFD); err != nil {
		t.Fatal(err)
	}
	if how := in.Ended(); how != "signal: killed" {
		t.Errorf("it ended with %q", how)
	}
}

// VMs keep running when forkd-spawn is killed, and a new one starts others.
func TestKilledSpawnerIsStartedAgain(t *testing.T) {
	s := openSpawner(t, false)
	in := mustLaunch(t, s)
	first := s.PID()
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.conn.done
	in.ask(t, order{World: world(t)})
	other := mustLaunch(t, s)
	if s.PID() == first {
		t.Error("it is the same process")
	}
	other.ask(t, order{World: world(t)})
	if err := signalKill(in.PIDFD); err != nil {
		t.Fatal(err)
	}
	if how := in.Ended(); how != "nobody saw how" {
		t.Errorf("it ended with %q", how)
	}
}

// If forkd-spawn is killed at any point of a start, nothing is left.
func TestKilledWhileItStarts(t *testing.T) {
	s := openSpawner(t, false)
	known := map[int]bool{}
	started := 0
	for i := range 40 {
		known[mustLaunch(t, s).PID] = true // so that there is one
		s.mu.Lock()
		c := s.conn
		s.mu.Unlock()
		time.AfterFunc(time.Duration(i)*400*time.Microsecond, func() { unix.Kill(c.process.Pid, unix.SIGKILL) })
		in, err := launch(t, s)
		if err == nil {
			started++
			_ = signalKill(in.PIDFD)
		}
		in.conn.Close()
		<-c.done
	}
	t.Logf("%d of 40 were started", started)
	eventually(t, "no process beside those that are known", func() bool {
		for _, e := range must(os.ReadDir("/proc")) {
			if pid, err := strconv.Atoi(e.Name()); err != nil || known[pid] {
				continue
			}
			b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			if err != nil || !strings.HasPrefix(string(b), vmwire.Program) && !strings.HasPrefix(string(b), wire.Name+"\x00init") {
				continue
			}
			exe, _ := os.Readlink("/proc/" + e.Name() + "/exe")
			if exe != must(os.Executable()) {
				continue
			}
			return false
		}
		return true
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func TestAPartThatCannotBeDoneIsNamed(t *testing.T) {
	s := openSpawner(t, false)
	c := must(s.connection())
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := s.probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r.Failed[jail.Files], r.Failed[jail.Scope] = unix.ENOSYS, unix.ENOSYS
	strict := &Spawner{cfg: Config{Strict: true, Log: slog.New(slog.DiscardHandler)}, conn: c}
	if err := strict.settle(r); err == nil || !strings.Contains(err.Error(), "landlock files (function not implemented)") ||
		strings.Contains(err.Error(), "scope") {
		t.Errorf("strict: %v", err)
	}
	strict.cfg.Strict = false
	if err := strict.settle(r); err != nil || strict.want.Has(jail.Files) || !strict.want.Has(jail.NoNewPrivs) {
		t.Errorf("best: %v, wants %s", err, strict.want)
	}
}
