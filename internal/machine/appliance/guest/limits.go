package guest

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// sysctls allow a thousand VMM processes with many mappings each. Same-page merging stays off, because it would
// reveal the memory of one guest to another. Packets are not forwarded: guests' networks end in user programs,
// which may send pings for them.
var sysctls = map[string]string{
	"/proc/sys/kernel/pid_max":              "4194304",
	"/proc/sys/kernel/threads-max":          "1000000",
	"/proc/sys/vm/max_map_count":            "4194304",
	"/proc/sys/fs/inotify/max_user_watches": "1048576",
	"/proc/sys/vm/overcommit_memory":        "1",
	"/proc/sys/fs/nr_open":                  "1048576",
	"/proc/sys/net/core/somaxconn":          "4096",
	"/proc/sys/net/ipv4/ip_forward":         "0",
	"/proc/sys/net/ipv4/ping_group_range":   "0 2147483647",
	"/sys/kernel/mm/ksm/run":                "0",
}

const maxOpenFiles = 1 << 20

func (a *appliance) raiseLimits() error {
	var errs []error
	for path, value := range sysctls {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			errs = append(errs, err)
		}
	}
	if err := enableControllers(); err != nil {
		errs = append(errs, err)
	}
	for _, r := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC} {
		if err := unix.Setrlimit(r, &unix.Rlimit{Cur: maxOpenFiles, Max: maxOpenFiles}); err != nil {
			errs = append(errs, fmt.Errorf("set limit %d: %w", r, err))
		}
	}
	memlock := &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, memlock); err != nil {
		errs = append(errs, fmt.Errorf("set memlock limit: %w", err))
	}
	return errors.Join(errs...)
}

// enableControllers enables all of the kernel's controllers for child cgroups.
func enableControllers() error {
	const root = "/sys/fs/cgroup/"
	b, err := os.ReadFile(root + "cgroup.controllers")
	if err != nil {
		return err
	}
	var want []string
	for _, c := range strings.Fields(string(b)) {
		want = append(want, "+"+c)
	}
	// #nosec G703 -- the path is a constant, and the content is the kernel's
	return os.WriteFile(root+"cgroup.subtree_control", []byte(strings.Join(want, " ")), 0o644)
}

func setHostname(name string) error {
	if name == "" {
		return nil
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return nil
}
