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

// Bounds of what is told of processes.
const (
	maxProcesses = 10_000
	maxArgs      = 512 // bytes of a command line
	maxProcFile  = 64 << 10
)

// processes reads the processes below a proc file system, by pid, without
// kernel threads. Those that end meanwhile are passed over.
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

// parseStatus reads proc_pid_status(5). A process without VmRSS has no memory
// of its own: it is a kernel thread, or it is ending.
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

// parseStat reads the start time, the 22nd field of proc_pid_stat(5). The
// second one, the name in brackets, may have brackets and spaces in it.
func parseStat(text []byte, p *agentv1.InventoryProcess) bool {
	const start = 22 - 2 // the last bracket stands for field 2
	f := bytes.Fields(text[max(0, bytes.LastIndexByte(text, ')')):])
	if len(f) <= start {
		return false
	}
	var err error
	p.StartTicks, err = strconv.ParseUint(string(f[start]), 10, 64)
	return err == nil
}

// field is the first number of the line that begins with name; 0 if there is none.
func field(text []byte, name string) uint64 {
	f := bytes.Fields(lineOf(text, name))
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(string(f[0]), 10, 63)
	return n
}

// lineOf is the rest of the line that begins with name, without space around it.
func lineOf(text []byte, name string) []byte {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			return bytes.TrimSpace(rest)
		}
	}
	return nil
}

// readSome reads a file of the kernel's, or its beginning; nil if it is not there.
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
