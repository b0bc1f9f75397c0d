package settings

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/sys/hostproc"
)

// Host reports the host's current resources.
type Host interface {
	Facts() (hostproc.Facts, error)
}

// DefaultMemoryOvercommit is how many times the host's memory may be promised. An idle child takes
// about a 32nd of its guest's memory.
const DefaultMemoryOvercommit = 32

// Pressure holds the limits of the host's pressure, by resource. A zero Bound is ignored.
type Pressure struct {
	// CPU and IO are zero in DefaultPressure.
	CPU, Memory, IO Bound
}

// Bound holds the limits for one resource, in percent of the last 10 s during which some task
// waited for it. At Fewer, fewer VMs are made concurrently, and at None no VMs.
type Bound struct {
	// Fewer and None are 0 to 100. If one of them is 0, it has no effect.
	Fewer, None float64
}

// DefaultPressure counts memory only. Tasks wait for CPUs during every fork, and sandboxes at their
// own CPU and disk limits also wait.
func DefaultPressure() Pressure { return Pressure{Memory: Bound{Fewer: 20, None: 60}} }

// ParsePressure parses words such as memory=20:60, io=80: or cpu=:95, on top of the default. The
// value off disables a resource.
func ParsePressure(words []string) (Pressure, error) {
	p := DefaultPressure()
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		of := map[string]*Bound{"cpu": &p.CPU, "memory": &p.Memory, "io": &p.IO}[name]
		if of == nil {
			return p, fmt.Errorf("%.80q: want cpu=, memory= or io=", word)
		}
		b, err := parseBound(value)
		if err != nil {
			return p, fmt.Errorf("%.80q: %w", word, err)
		}
		*of = b
	}
	return p, nil
}

func parseBound(text string) (b Bound, err error) {
	if text == "off" {
		return Bound{}, nil
	}
	fewer, none, ok := strings.Cut(text, ":")
	if !ok || fewer+none == "" {
		return b, fmt.Errorf("want FEWER:NONE in percent, such as 20:60, or off")
	}
	for _, f := range []struct {
		text string
		to   *float64
	}{{fewer, &b.Fewer}, {none, &b.None}} {
		if f.text == "" {
			continue
		}
		if *f.to, err = strconv.ParseFloat(f.text, 64); err != nil || !(*f.to > 0 && *f.to <= 100) {
			return b, fmt.Errorf("%.40q is no percentage above 0", f.text)
		}
	}
	if b.None > 0 && b.Fewer > b.None {
		return b, fmt.Errorf("fewer from %g %% on is more than none from %g %% on", b.Fewer, b.None)
	}
	return b, nil
}
