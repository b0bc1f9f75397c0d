package cgroup

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// reclaimable are the fields of memory.stat which the kernel can free without swap. MemAvailable counts them, too.
var reclaimable = []string{"inactive_file", "active_file", "slab_reclaimable"}

// MemoryAround returns the available memory and the lowest limit of dir and of all groups around it, in bytes. bounded
// is false if no group has a limit. The two may come from different groups: each is the least.
func MemoryAround(dir string) (available, limit int64, bounded bool) {
	for ; isGroup(dir); dir = filepath.Dir(dir) {
		most, ok := numberIn(dir, "memory.max")
		used, counted := numberIn(dir, "memory.current")
		if !ok || !counted {
			continue
		}
		free := max(0, min(most, most-used+reclaimableIn(dir)))
		if !bounded {
			available, limit, bounded = free, most, true
		}
		available, limit = min(available, free), min(limit, most)
	}
	return available, limit, bounded
}

func reclaimableIn(dir string) (sum int64) {
	b, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0
	}
	stat := map[string]int64{}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		name, value, _ := strings.Cut(sc.Text(), " ")
		stat[name], _ = strconv.ParseInt(value, 10, 64)
	}
	for _, name := range reclaimable {
		sum += stat[name]
	}
	return sum
}
