package peers

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// pssKiB returns the memory of processes. Shared pages count proportionally. Processes that have
// ended count as 0.
func pssKiB(pids []int) (sum int64) {
	for _, pid := range pids {
		f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			if rest, is := strings.CutPrefix(s.Text(), "Pss:"); is {
				kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
				sum += kib
				break
			}
		}
		f.Close()
	}
	return sum
}

// mentioning returns the processes with a word in their command line, such as a container's name.
// It leaves out this process.
func mentioning(word string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), word) {
			pids = append(pids, pid)
		}
	}
	return pids
}
