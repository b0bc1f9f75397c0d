package appliance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/forkd/forkd/internal/images/debtool"
	"github.com/forkd/forkd/internal/images/initramfs"
	"github.com/forkd/forkd/internal/machine/appliance/guest"
	"github.com/forkd/forkd/internal/sys/durable"
)

// dataMount is the mount point of the appliance's data disk.
const dataMount = "/var/lib/forkd"

// The daemon's name among the appliance's services, and its log there.
const (
	daemonService = "daemon"
	daemonLog     = dataMount + "/log/daemon.log"
	auditLog      = dataMount + "/log/audit.log" // the default
)

// guestToken is the path of the bearer token for the appliance's services.
const guestToken = "/etc/forkd/token" // #nosec G101 -- a path

// moduleNames are the modules that the appliance needs in addition to the ones built into Debian's cloud kernel.
// Their dependencies are added.
var moduleNames = []string{
	"virtio_pci", "virtio_net", "virtio_blk", "virtio-rng", "virtio_balloon", // before 6.2 the first is a module, too
	"kvm-amd", "kvm-intel", "tun", "veth", // veth: tests build networks with it
	"fuse", // snapshots that are used before they have arrived
}

// applets are the busybox tools with their own names.
var applets = []string{
	"sh", "ash", "ls", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "ln", "ps", "top", "free", "df", "du", "dmesg",
	"mount", "umount", "grep", "sed", "awk", "find", "head", "tail", "less", "vi", "wc", "sort", "uniq", "cut", "tr",
	"kill", "sleep", "date", "env", "id", "hostname", "ip", "ping", "wget", "nc", "lsmod", "stat", "touch", "chmod",
	"chown", "dd", "hexdump", "sha256sum", "md5sum", "tar", "gzip", "xargs", "true", "false", "echo", "printf", "test",
	"seq", "uname", "uptime", "nproc", "sync", "clear", "reset", "tee", "yes", "time", "timeout", "basename", "dirname",
}

// writeInitrd builds the appliance's initramfs. It is private (mode 0600), because it contains the token.
func (a *Appliance) writeInitrd(p plan, token string) error {
	entries, err := a.initrdEntries(p, token)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := initramfs.Write(&buf, entries); err != nil {
		return err
	}
	return durable.Replace(a.path(initrdFile), buf.Bytes())
}

func (a *Appliance) initrdEntries(p plan, token string) ([]initramfs.Entry, error) {
	entries, err := initramfs.Modules(p.kernel.modules)
	if err != nil {
		return nil, err
	}
	guestConfig, err := a.guestConfig(p.ipv6, p.state)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(guestConfig)
	if err != nil {
		return nil, err
	}
	entries = append(entries,
		initramfs.Dir("root", 0o700), initramfs.Dir("proc", 0o555), initramfs.Dir("sys", 0o555),
		initramfs.Dir("dev", 0o755), initramfs.Dir("run", 0o755), initramfs.Dir("tmp", 0o1777),
		initramfs.Dir("mnt", 0o755), initramfs.Dir("var/log", 0o755),
		initramfs.Char("dev/console", 0o600, 5, 1), // before devtmpfs is mounted
		initramfs.Symlink("sbin", "usr/bin"), initramfs.Symlink("bin", "usr/bin"), initramfs.Symlink("usr/sbin", "bin"),
		initramfs.File(guest.ConfigPath[1:], 0o644, config),
		initramfs.File(guestToken[1:], 0o600, []byte(token)),
		initramfs.File("etc/passwd", 0o644,
			[]byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n")),
		initramfs.File("etc/group", 0o644, []byte("root:x:0:\nkvm:x:104:\nnogroup:x:65534:\n")),
		initramfs.File("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n::1 localhost\n")),
	)
	files, err := p.state.Network.entries()
	if err != nil {
		return nil, err
	}
	entries = append(entries, files...)
	more, err := programEntries(p.programs)
	return append(entries, more...), err
}

func programEntries(programs map[string]string) ([]initramfs.Entry, error) {
	var entries []initramfs.Entry
	for _, target := range sortedKeys(programs) {
		b, err := os.ReadFile(programs[target])
		if err != nil {
			return nil, err
		}
		entries = append(entries, initramfs.File(target, 0o755, b))
	}
	for _, name := range applets {
		entries = append(entries, initramfs.Symlink("usr/bin/"+name, "busybox"))
	}
	return entries, nil
}

// guestConfig lists the services of the appliance. The agent is the last to be killed when memory is short:
// without it the problem could not be debugged.
func (a *Appliance) guestConfig(ipv6 bool, s state) (guest.Config, error) {
	settings, err := s.Network.args()
	if s.Jail != "" {
		settings = append([]string{"--jail", s.Jail}, settings...)
	}
	settings = append(append([]string{"--audit-log", auditLog}, settings...), s.Serve...) // the last flag wins
	return guest.Config{
		Hostname:  a.qemuName(),
		DataMount: dataMount,
		IPv6:      ipv6,
		Services: []guest.Service{
			{Name: "agent", OOMScore: -900, Log: "/run/forkd-agent.log", Args: []string{
				"/usr/bin/forkd-agent", "--listen", "tcp:0.0.0.0:" + strconv.Itoa(guestAgentPort), "--token-file", guestToken}},
			{Name: daemonService, Log: daemonLog, Args: append([]string{
				"/usr/bin/forkd", "serve", "--listen", "unix:///run/forkd/forkd.sock",
				"--plain-http", "--listen", "tcp://0.0.0.0:" + strconv.Itoa(guestAPIPort),
				"--token-file", guestToken, "--data", dataMount}, settings...)},
		},
	}, err
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// busyboxPath returns the path of the static busybox from the Debian package busybox-static.
func busyboxPath() (string, error) {
	for _, path := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("busybox is not installed: install busybox-static (%s)", debtool.Installer())
}
