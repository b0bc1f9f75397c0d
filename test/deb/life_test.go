package deb

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// TestLife installs, uses, upgrades, breaks and removes the package in a Debian with systemd.
func TestLife(t *testing.T) {
	kvmtest.Soak(t)
	file := build(t)
	d := boot(t)
	d.copy(t, file, "forkd.deb")
	l := &life{debian: d}
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"install", l.install}, {"units", l.units}, {"fork", l.fork}, {"limits", l.limits}, {"users", l.users},
		{"restart", l.restart}, {"kill", l.kill}, {"hang", l.hang}, {"stop and use", l.stopAndUse},
		{"configuration", l.configuration}, {"upgrade", l.upgrade}, {"end of the VMs", l.endOfVMs},
		{"remove", l.remove}, {"purge", l.purge}, {"install again", l.install},
	} {
		if !t.Run(step.name, step.do) {
			t.Fatal("the steps depend on each other")
		}
	}
}

// life is the state of the installed package.
type life struct {
	*debian
	ids []string // running sandboxes
}

func (l *life) install(t *testing.T) {
	l.sh(t, "dpkg -i forkd.deb")
	l.sh(t, "systemctl is-active forkd.socket forkd.service forkd-vms.service")
	l.complete(t)
	if out := l.sh(t, "id -nG forkd; stat -c %U:%G:%a /var/lib/forkd /var/log/forkd /run/forkd /run/forkd/forkd.sock"); out !=
		"forkd kvm\nforkd:forkd:700\nforkd:forkd:750\nroot:root:755\nforkd:forkd:660" {
		t.Error(out)
	}
	if out := l.sh(t, "grep -E '^(Uid|CapPrm|CapEff|CapAmb)' /proc/$(systemctl show -P MainPID forkd)/status | tr -d '\\t'"); !strings.HasSuffix(out,
		"CapPrm:0000000000000000\nCapEff:0000000000000000\nCapAmb:0000000000000000") {
		t.Errorf("the daemon has rights:\n%s", out)
	}
}

// complete checks that the daemon started without a warning, and that the jail lacks no part.
func (l *life) complete(t *testing.T) {
	t.Helper()
	log := l.sh(t, "journalctl --no-pager -o cat _PID=$(systemctl show -P MainPID forkd)")
	if !strings.Contains(log, "VMs are in a jail") || strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the daemon's log:\n%s", log)
	}
}

func (l *life) units(t *testing.T) {
	if out := l.sh(t, "systemd-analyze verify forkd.service forkd-vms.service forkd.socket 2>&1"); out != "" {
		t.Error(out)
	}
	l.sh(t, "man -w forkd-fork")
	l.sh(t, "bash -c '. /usr/share/bash-completion/completions/forkd'")
}

func (l *life) fork(t *testing.T) {
	c := l.client(t)
	dir := t.TempDir()
	if err := harness.PythonImage(t, dir); err != nil {
		t.Fatal(err)
	}
	img, err := image.OpenDir(filepath.Join(dir, "python-numpy"))
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(img.Export(t.Context(), w, nil)) }()
	if _, err := c.ImportImage(t.Context(), "python-numpy", "", r); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "py", Image: "python-numpy"}, nil); err != nil {
		t.Fatal(err)
	}
	out := l.sh(t, "forkd fork py -n 3 -q --memory-limit-mib 600")
	l.ids = strings.Fields(out)
	if len(l.ids) != 3 {
		t.Fatal(out)
	}
	l.answer(t)
	// Each VM is a user of its own, in a network of its own, below the delegated group.
	users := map[string]bool{}
	for _, s := range l.list(t, c) {
		at := fmt.Sprintf("/proc/%d/", *s.PID)
		users[l.sh(t, "stat -c %u "+at)] = true
		if group := l.sh(t, "cat "+at+"cgroup"); !strings.HasPrefix(group, "0::/forkd.slice/forkd-vms.service/vms/") {
			t.Error(group)
		}
		if caps := l.sh(t, "grep CapPrm "+at+"status"); !strings.HasSuffix(caps, "\t0000000000000000") {
			t.Error(caps)
		}
	}
	for user := range users {
		if user < "1895825408" || user > "1895890943" || len(user) != 10 {
			t.Errorf("a VM has the user %s", user)
		}
	}
	if len(users) != 3 {
		t.Errorf("3 VMs have the users %v", users)
	}
	if out := l.sh(t, "forkd branch "+l.ids[0]+" --json"); strings.Contains(out, `"mode": "stop"`) {
		t.Error(out)
	}
	l.ids = nil
	for _, s := range l.list(t, c) {
		l.ids = append(l.ids, s.ID)
	}
}

func (l *life) list(t *testing.T, c *client.Client) (running []api.SandboxInfo) {
	t.Helper()
	all, err := c.ListSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// answer checks that each sandbox runs programs.
func (l *life) answer(t *testing.T) {
	t.Helper()
	for _, id := range l.ids {
		if out := l.sh(t, "forkd exec "+id+" -- sh -c 'echo hello from $(hostname)'"); !strings.HasPrefix(out, "hello from ") {
			t.Errorf("%s: %s", id, out)
		}
	}
}

// pids returns the processes of the VMs.
func (l *life) pids(t *testing.T) string {
	t.Helper()
	return l.sh(t, "cat /sys/fs/cgroup/forkd.slice/forkd-vms.service/vms/*/cgroup.procs /sys/fs/cgroup/forkd.slice/forkd-vms.service/vms/*/*/cgroup.procs 2>/dev/null | sort -n || true")
}

func (l *life) limits(t *testing.T) {
	c := l.client(t)
	s := l.list(t, c)[0]
	group := strings.TrimPrefix(l.sh(t, fmt.Sprintf("cat /proc/%d/cgroup", *s.PID)), "0::")
	limit := l.sh(t, "cat /sys/fs/cgroup"+group+"/memory.max")
	if limit == "max" {
		t.Errorf("%s has no limit of memory", group)
	}
	if out := l.sh(t, "cat /sys/fs/cgroup/forkd.slice/forkd.service/cpu.weight /sys/fs/cgroup/forkd.slice/forkd.service/memory.max"); strings.Contains(out, "max") || !strings.HasPrefix(out, "1000\n") {
		t.Error(out)
	}
}

// users checks who may use the socket.
func (l *life) users(t *testing.T) {
	l.sh(t, "useradd -m alice; useradd -m -G forkd bob")
	if out := l.sh(t, "su bob -c 'forkd ps -q'"); len(strings.Fields(out)) != len(l.ids) {
		t.Errorf("a member of the group sees %s", out)
	}
	out, err := l.try("su alice -c 'forkd --url unix:///run/forkd/forkd.sock ps'")
	if err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("another user gets %v: %s", err, out)
	}
	// With a key the same user is a tenant, also where the socket is open.
	l.sh(t, "chmod 666 /run/forkd/forkd.sock")
	out, err = l.try("su alice -c 'forkd --url unix:///run/forkd/forkd.sock ps'")
	if err == nil || !strings.Contains(out, "requires a token") && !strings.Contains(out, "belongs to another user") {
		t.Errorf("another user gets %v: %s", err, out)
	}
	l.sh(t, "chmod 660 /run/forkd/forkd.sock")
}

// same checks that the VMs are the same processes as before, and answer.
func (l *life) same(t *testing.T, before string) {
	t.Helper()
	l.until(t, time.Minute, "forkd ps")
	if now := l.pids(t); now != before {
		t.Errorf("the VMs were the processes %s, now %s", before, now)
	}
	l.answer(t)
}

func (l *life) restart(t *testing.T) {
	before := l.pids(t)
	l.sh(t, "systemctl restart forkd")
	l.same(t, before)
	l.complete(t)
	if out := l.sh(t, "forkd fork py -q"); out == "" {
		t.Error("a restarted daemon does not fork")
	} else {
		l.ids = append(l.ids, out)
	}
}

func (l *life) kill(t *testing.T) {
	before := l.pids(t)
	l.sh(t, "kill -9 $(systemctl show -P MainPID forkd)")
	l.until(t, time.Minute, "systemctl is-active forkd")
	l.same(t, before)
}

// hang stops the daemon's threads. The watchdog ends it, and systemd starts it again.
func (l *life) hang(t *testing.T) {
	before := l.pids(t)
	l.sh(t, `mkdir -p /etc/systemd/system/forkd.service.d
printf '[Service]\nWatchdogSec=5\n' >/etc/systemd/system/forkd.service.d/test.conf
systemctl daemon-reload; systemctl restart forkd`)
	pid := l.sh(t, "systemctl show -P MainPID forkd")
	l.sh(t, "kill -STOP "+pid)
	l.until(t, time.Minute, "[ $(systemctl show -P MainPID forkd) != "+pid+" ] && systemctl is-active forkd")
	l.sh(t, "journalctl -u forkd --no-pager | grep 'Watchdog timeout'")
	l.sh(t, "rm -r /etc/systemd/system/forkd.service.d; systemctl daemon-reload; systemctl restart forkd")
	l.same(t, before)
}

// stopAndUse stops the daemon. A command starts it by the socket.
func (l *life) stopAndUse(t *testing.T) {
	before := l.pids(t)
	l.sh(t, "systemctl stop forkd.service 2>/dev/null")
	if out, _ := l.try("systemctl is-active forkd.service"); out != "" && !strings.Contains(out, "inactive") {
		t.Error(out)
	}
	l.same(t, before)
	l.sh(t, "systemctl is-active forkd.service")
}

// configuration breaks the file. The VMs stay, and the error names the line.
func (l *life) configuration(t *testing.T) {
	before := l.pids(t)
	l.sh(t, "cp /etc/forkd/config.yaml good; echo 'pol: 2' >>/etc/forkd/config.yaml")
	lines := l.sh(t, "wc -l </etc/forkd/config.yaml")
	want := "/etc/forkd/config.yaml:" + lines + ": pol: unknown setting; is it pool?"
	if out, err := l.try("forkd serve --config /etc/forkd/config.yaml --check"); err == nil || !strings.Contains(out, want) {
		t.Errorf("got %v: %s", err, out)
	}
	if _, err := l.try("systemctl restart forkd"); err == nil {
		t.Error("the daemon starts")
	}
	if log := l.sh(t, "systemctl show -P NRestarts forkd; journalctl -u forkd --no-pager -n 20"); !strings.HasPrefix(log, "0\n") || !strings.Contains(log, want) {
		t.Error(log)
	}
	l.sh(t, "cp good /etc/forkd/config.yaml; systemctl reset-failed forkd forkd.socket; systemctl restart forkd.socket forkd")
	l.same(t, before)
}

// upgrade installs another version over a changed configuration.
func (l *life) upgrade(t *testing.T) {
	before := l.pids(t)
	l.sh(t, `echo 'scrub-interval: 48h' >>/etc/forkd/config.yaml
rm -rf x; dpkg-deb -R forkd.deb x
sed -i 's/^Version: .*/Version: 9.0.0/' x/DEBIAN/control
dpkg-deb --root-owner-group -Znone -b x new.deb
dpkg -i new.deb
grep -q 48h /etc/forkd/config.yaml`)
	l.same(t, before)
	l.complete(t)
}

func (l *life) endOfVMs(t *testing.T) {
	l.sh(t, "systemctl stop forkd-vms 2>/dev/null")
	if out := l.sh(t, "pgrep -x forkd-vmm || true"); out != "" {
		t.Errorf("VMs still run: %s", out)
	}
	l.until(t, time.Minute, "forkd ps")
	l.sh(t, "systemctl is-active forkd forkd-vms; forkd fork py -q")
}

func (l *life) remove(t *testing.T) {
	l.sh(t, "dpkg -r forkd")
	if out := l.sh(t, "pgrep -u forkd -l || true; pgrep forkd -l || true"); out != "" {
		t.Errorf("processes stay:\n%s", out)
	}
	l.sh(t, "test -d /var/lib/forkd/layers -o -d /var/lib/forkd/images; test -f /etc/forkd/config.yaml; test ! -e /run/forkd/forkd.sock")
}

func (l *life) purge(t *testing.T) {
	l.sh(t, "dpkg --purge forkd")
	for _, path := range []string{"/var/lib/forkd", "/var/log/forkd", "/run/forkd", "/etc/forkd", "/usr/lib/forkd",
		"/sys/fs/cgroup/forkd.slice/forkd-vms.service", "/usr/share/forkd"} {
		if _, err := l.try("test -e " + path); err == nil {
			t.Errorf("%s stays", path)
		}
	}
	if out := l.sh(t, "grep forkd /etc/passwd /etc/group /etc/subuid /etc/subgid || true; systemctl list-units --all --plain --no-legend 'forkd*.service' 'forkd*.socket'"); out != "" {
		t.Errorf("traces stay:\n%s", out)
	}
	if out := l.sh(t, "systemctl is-system-running || true"); out != "running" {
		t.Errorf("the system is %s:\n%s", out, l.sh(t, "systemctl --failed"))
	}
}
