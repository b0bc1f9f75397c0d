package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/snapshot"
)

// Memory reads what a sandbox costs from the kernel's account of its process.
func (e *Engine) Memory(id string) (MemoryUse, error) {
	_, m, err := e.running(id)
	if err != nil {
		return MemoryUse{}, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", m.proc.PID()))
	if err != nil {
		return MemoryUse{}, problem(ErrGuestGone, "", "read memory of sandbox %s: %w", id, err)
	}
	defer f.Close()
	use, err := parseSmaps(f, filepath.Join(e.cfg.StoreDir, "snapshots")+"/")
	if err != nil {
		return MemoryUse{}, problem(ErrGuestGone, "", "read memory of sandbox %s: %w", id, err)
	}
	return use, nil
}

// parseSmaps sums a process's mappings (proc_pid_smaps(5)). Guest memory is what
// maps a snapshot's memory file: private pages of it are the guest's own.
func parseSmaps(r io.Reader, snapshots string) (MemoryUse, error) {
	var use MemoryUse
	guest := false
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		name, rest, _ := strings.Cut(sc.Text(), " ")
		if !strings.HasSuffix(name, ":") { // a mapping's first line
			guest = isGuestMemory(rest, snapshots)
			continue
		}
		shared := name == "Shared_Clean:" || name == "Shared_Dirty:"
		if name != "Pss:" && name != "Anonymous:" && !shared {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		switch {
		case err != nil:
			return use, fmt.Errorf("smaps: %w", err)
		case name == "Pss:":
			use.PSSKiB += kib
		case shared && guest:
			use.GuestSharedKiB += kib
		case shared:
		case guest:
			use.GuestDirtyKiB += kib
		default:
			use.VMMAnonKiB += kib
		}
	}
	return use, sc.Err()
}

// isGuestMemory looks at "perms offset dev inode path"; the path of a deleted
// snapshot has a mark behind it.
func isGuestMemory(mapping, snapshots string) bool {
	i := strings.Index(mapping, snapshots)
	if i < 0 {
		return false
	}
	path := strings.TrimSuffix(mapping[i:], " (deleted)")
	// A branch's own file, or one of the snapshots below (branchmemory.go).
	base := filepath.Base(path)
	return base == snapshot.MemoryFile || strings.HasPrefix(base, snapshot.MemoryFile+".")
}
