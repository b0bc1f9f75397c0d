package hostproc

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// CPU is the host's processor, as Linux describes it.
type CPU struct {
	Vendor string
	Flags  []string
}

// ReadCPU reads the first processor of /proc/cpuinfo.
func ReadCPU() (CPU, error) {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return CPU{}, fmt.Errorf("read the processor: %w", err)
	}
	return parseCPU(string(b))
}

func parseCPU(text string) (c CPU, err error) {
	first, _, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "vendor_id":
			c.Vendor = value
		case "flags":
			c.Flags = strings.Fields(value)
		}
	}
	if c.Vendor == "" || len(c.Flags) == 0 {
		return c, fmt.Errorf("read the processor: /proc/cpuinfo has no vendor or no flags")
	}
	return c, nil
}

// instructions are the beginnings of the names of features that add instructions for programs. KVM offers them to
// guests only if the processor has them. It emulates some other features.
var instructions = []string{"avx", "sse4", "ssse3", "aes", "bmi", "fma", "sha_ni", "adx", "movbe", "popcnt", "f16c",
	"vaes", "vpclmul", "gfni", "rdrand", "rdseed"}

// Missing returns the features that the processor lacks, of those for programs.
func (c CPU) Missing(need []string) (missing []string) {
	for _, n := range need {
		added := slices.ContainsFunc(instructions, func(p string) bool { return strings.HasPrefix(n, p) })
		if added && !slices.Contains(c.Flags, n) {
			missing = append(missing, n)
		}
	}
	return missing
}
