package peers

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// pssKiB is the memory of processes, with shared pages counted by share. One that has
// ended counts for nothing.
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

// mentioning are the processes with a word in their command line, such as a container's
// name, without this one.
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
