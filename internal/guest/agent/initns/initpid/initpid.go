// Package initpid finds the init that package initns runs in a guest. A file in the guest's memory has its process id, as
// the guest sees it. The file of an init that was killed stays, so its process is examined each time.
package initpid

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// File is the file with the process id of the init.
const File = "/run/forkd/init.pid"

// bus is the socket of a system's D-Bus. It is in the guest's /run, which is the init's, too.
const bus = "/run/dbus/system_bus_socket"

// Write writes the file for an init.
func Write(pid int) error {
	if err := os.WriteFile(File, fmt.Append(nil, pid), 0o644); err != nil {
		return fmt.Errorf("write the process id of the init: %w", err)
	}
	return nil
}

// Remove removes the file of an init that has ended.
func Remove() { _ = os.Remove(File) }

// Find returns the process id of the running init.
func Find() (pid int, found bool) { return find("/") }

func find(root string) (int, bool) {
	b, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 2 {
		return 0, false
	}
	status, err := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(pid), "status"))
	if err != nil || !isFirst(string(status)) {
		return 0, false
	}
	return pid, true
}

// isFirst reports whether /proc/PID/status is of the first process of a namespace below the guest's.
func isFirst(status string) bool {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "NSpid:"); ok {
			ids := strings.Fields(text)
			return len(ids) > 1 && ids[1] == "1"
		}
	}
	return false
}

// Environ returns the variables for a program beside the running init, or nil. systemd refuses the private connections
// of programs without a process id in its namespace, so systemctl has to use D-Bus.
func Environ() map[string]string { return environ("/") }

func environ(root string) map[string]string {
	if _, found := find(root); !found {
		return nil
	}
	if _, err := os.Stat(filepath.Join(root, bus)); err != nil {
		return nil
	}
	return map[string]string{"SYSTEMCTL_FORCE_BUS": "1"}
}
