package inventory

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// Limits of the list of processes.
const (
	maxProcesses = 10_000
	maxArgs      = 512 // bytes of a command line
	maxProcFile  = 64 << 10
)

// processes reads the processes below a proc file system, sorted by pid, without kernel threads. It
// skips processes that end meanwhile.
func processes(proc string) (all []*agentv1.InventoryProcess, cut uint64) {
	entries, _ := os.ReadDir(proc)
	for _, en := range entries {
		pid, err := strconv.ParseUint(en.Name(), 10, 32)
		if err != nil {
			continue
		}
		p, ok := oneProcess(filepath.Join(proc, en.Name()), uint32(pid))
		switch {
		case !ok:
		case len(all) == maxProcesses:
			cut++
		default:
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *agentv1.InventoryProcess) int { return cmp.Compare(a.Pid, b.Pid) })
	return all, cut
}

func oneProcess(dir string, pid uint32) (*agentv1.InventoryProcess, bool) {
	p := &agentv1.InventoryProcess{Pid: pid}
	if !parseStatus(readSome(filepath.Join(dir, "status")), p) || !parseStat(readSome(filepath.Join(dir, "stat")), p) {
		return nil, false
	}
	args := bytes.TrimRight(readSome(filepath.Join(dir, "cmdline")), "\x00")
	p.Args = args[:min(len(args), maxArgs)]
	p.PssKib = field(readSome(filepath.Join(dir, "smaps_rollup")), "Pss:")
	return p, true
}

// parseStatus reads proc_pid_status(5). A process without VmRSS has no memory: it is a kernel
// thread, or it is ending.
func parseStatus(text []byte, p *agentv1.InventoryProcess) bool {
	if !bytes.Contains(text, []byte("\nVmRSS:")) {
		return false
	}
	name := lineOf(text, "Name:")
	p.Name = name[:min(len(name), maxArgs)]
	p.Ppid, p.Uid = uint32(field(text, "PPid:")), uint32(field(text, "Uid:"))
	p.RssKib, p.AnonKib = field(text, "VmRSS:"), field(text, "RssAnon:")
	return true
}

// parseStat reads the state and the start time, the 3rd and the 22nd field of proc_pid_stat(5). The second field, the name in
// parentheses, may itself contain parentheses and spaces.
func parseStat(text []byte, p *agentv1.InventoryProcess) bool {
	const start = 22 - 2 // the last parenthesis stands for field 2
	f := bytes.Fields(text[max(0, bytes.LastIndexByte(text, ')')):])
	if len(f) <= start {
		return false
	}
	p.State = bytes.Clone(f[1][:1])
	var err error
	p.StartTicks, err = strconv.ParseUint(string(f[start]), 10, 64)
	return err == nil
}

// field returns the first number of the line that begins with name, or 0.
func field(text []byte, name string) uint64 {
	f := bytes.Fields(lineOf(text, name))
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(string(f[0]), 10, 63)
	return n
}

// lineOf returns the rest of the line that begins with name, trimmed.
func lineOf(text []byte, name string) []byte {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return bytes.TrimSpace(rest)
		}
	}
	return nil
}

// readSome reads at most maxProcFile bytes of a proc file. It returns nil if the file is missing.
func readSome(name string) []byte {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProcFile))
	if err != nil {
		return nil
	}
	return b
}
