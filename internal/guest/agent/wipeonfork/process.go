package wipeonfork

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
)

// process is a process by its folder in /proc. The open folder belongs to it even if another process gets its ID.
type process struct {
	pid   int
	files *os.Root
}

// activity is the part of /proc/PID/stat that changes when a process works. Marks on new memory need a page fault, and
// new threads, time and memory are counted as well.
type activity struct {
	minorFaults, majorFaults uint64
	userTime, systemTime     uint64 // in ticks of 10 ms
	threads, began           uint64
	size                     uint64 // of the address space in bytes; 0: a process of the kernel
}

// read calls do with one of the files.
func (p *process) read(name string, do func(io.Reader) error) error {
	f, err := p.files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(f)
}

func (p *process) activity() (activity, error) {
	line, err := p.files.ReadFile("stat")
	if err != nil {
		return activity{}, err
	}
	return parseStat(line)
}

// parseStat reads a line of /proc/PID/stat: proc_pid_stat(5). The second field is the name of the program in
// parentheses, which may itself have spaces and parentheses.
func parseStat(line []byte) (a activity, err error) {
	rest := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	const third = 3 // the number of the first field after the name
	for field, to := range map[int]*uint64{10: &a.minorFaults, 12: &a.majorFaults, 14: &a.userTime, 15: &a.systemTime,
		20: &a.threads, 22: &a.began, 23: &a.size} {
		if field-third >= len(rest) {
			return activity{}, fmt.Errorf("line %.40q of stat has %d fields after the name", line, len(rest))
		}
		if *to, err = strconv.ParseUint(string(rest[field-third]), 10, 64); err != nil {
			return activity{}, fmt.Errorf("field %d of %.40q: %w", field, line, err)
		}
	}
	return a, nil
}
