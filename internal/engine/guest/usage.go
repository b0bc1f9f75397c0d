package guest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Memory returns a sandbox's memory use, from the kernel's account of its process.
func (c *Calls) Memory(id string) (sandbox.MemoryUse, error) {
	_, m, err := c.cfg.Sandboxes.Running(id)
	if err != nil {
		return sandbox.MemoryUse{}, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", m.Proc.PID()))
	if err != nil {
		return sandbox.MemoryUse{}, sandbox.Errorf(sandbox.ErrGuestGone, "", "read memory of sandbox %s: %w", id, err)
	}
	defer f.Close()
	use, err := parseSmaps(f, c.cfg.Layers+"/")
	if err != nil {
		return sandbox.MemoryUse{}, sandbox.Errorf(sandbox.ErrGuestGone, "", "read memory of sandbox %s: %w", id, err)
	}
	return use, nil
}

// mapping is one mapping of a process.
type mapping struct {
	start, end uint64
	layer      bool // of a layer's file

	pssKiB, anonKiB, sharedKiB int64
}

// add parses a line of the mapping's account.
func (m *mapping) add(name, rest string) error {
	var to *int64
	switch name {
	case "Pss:":
		to = &m.pssKiB
	case "Anonymous:":
		to = &m.anonKiB
	case "Shared_Clean:", "Shared_Dirty:":
		to = &m.sharedKiB
	default:
		return nil
	}
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
	*to += kib
	return err
}

// parseSmaps sums a process's mappings (proc_pid_smaps(5)). Guest memory is the range between the
// first and the last mapping of a layer. It is one contiguous range, and parts of it without a
// layer are anonymous. Its private pages belong to the guest alone.
func parseSmaps(r io.Reader, layers string) (sandbox.MemoryUse, error) {
	all, err := readSmaps(r, layers)
	if err != nil {
		return sandbox.MemoryUse{}, fmt.Errorf("smaps: %w", err)
	}
	var first, last uint64
	for _, m := range all {
		if m.layer && first == 0 {
			first = m.start
		}
		if m.layer {
			last = m.end
		}
	}
	var use sandbox.MemoryUse
	for _, m := range all {
		use.PSSKiB += m.pssKiB
		if m.start >= first && m.end <= last {
			use.GuestDirtyKiB += m.anonKiB
			use.GuestSharedKiB += m.sharedKiB
		} else {
			use.VMMAnonKiB += m.anonKiB
		}
	}
	return use, nil
}

func readSmaps(r io.Reader, layers string) ([]mapping, error) {
	var all []mapping
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		name, rest, _ := strings.Cut(sc.Text(), " ")
		if !strings.HasSuffix(name, ":") { // a mapping's first line: "start-end perms offset dev inode path"
			m := mapping{layer: strings.Contains(rest, layers)}
			if _, err := fmt.Sscanf(name, "%x-%x", &m.start, &m.end); err != nil {
				return nil, fmt.Errorf("range %q: %w", name, err)
			}
			all = append(all, m)
			continue
		}
		if len(all) == 0 {
			continue
		}
		if err := all[len(all)-1].add(name, rest); err != nil {
			return nil, err
		}
	}
	return all, sc.Err()
}
