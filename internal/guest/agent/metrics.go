package agent

import (
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is the answer to GET /metrics, with E2B's names. Memory and disk are in bytes.
type usage struct {
	TS          int64   `json:"ts"`
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"`
	MemTotal    uint64  `json:"mem_total"`
	MemUsed     uint64  `json:"mem_used"`
	MemCache    uint64  `json:"mem_cache"`
	MemTotalMiB uint64  `json:"mem_total_mib"`
	MemUsedMiB  uint64  `json:"mem_used_mib"`
	DiskUsed    uint64  `json:"disk_used"`
	DiskTotal   uint64  `json:"disk_total"`
}

func (a *Agent) metrics(w http.ResponseWriter, _ *http.Request) {
	u := usage{TS: time.Now().Unix(), CPUCount: runtime.NumCPU(), CPUUsedPct: a.cpuUsed()}
	u.readMemory()
	var st unix.Statfs_t
	if unix.Statfs(a.cfg.Root, &st) == nil {
		u.DiskTotal = st.Blocks * uint64(st.Bsize)
		u.DiskUsed = (st.Blocks - st.Bfree) * uint64(st.Bsize)
	}
	writeJSON(w, u)
}

func (u *usage) readMemory() {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return
	}
	kib := parseMeminfo(string(b))
	u.MemTotal = kib["MemTotal"] << 10
	u.MemCache = kib["Cached"] << 10
	u.MemUsed = u.MemTotal - min(u.MemTotal, kib["MemAvailable"]<<10)
	u.MemTotalMiB, u.MemUsedMiB = u.MemTotal>>20, u.MemUsed>>20
}

func parseMeminfo(text string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		key, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) == 0 {
			continue
		}
		if n, err := strconv.ParseUint(f[0], 10, 44); err == nil {
			out[key] = n
		}
	}
	return out
}

// cpuUsed returns the share of CPU time used since its previous call, in percent. Sampling in
// between would wake an idle guest.
func (a *Agent) cpuUsed() float64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	busy, total := parseCPU(string(b))
	a.cpuMu.Lock()
	defer a.cpuMu.Unlock()
	dBusy, dTotal := busy-a.cpuBusy, total-a.cpuTotal
	a.cpuBusy, a.cpuTotal = busy, total
	if dTotal <= 0 {
		return 0
	}
	return 100 * dBusy / dTotal
}

// parseCPU reads the first line of /proc/stat: user nice system idle iowait …
func parseCPU(text string) (busy, total float64) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 6 || f[0] != "cpu" {
		return 0, 0
	}
	for i, s := range f[1:min(len(f), 9)] { // user time includes guest time
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, 0
		}
		total += float64(n)
		if i != 3 && i != 4 {
			busy += float64(n)
		}
	}
	return busy, total
}
