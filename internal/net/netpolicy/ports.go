package netpolicy

import (
	"fmt"
	"strconv"
	"strings"
)

// PortRange is the range of ports from First to Last, both included.
type PortRange struct {
	First, Last uint16 // 1 to 65535
}

// OnePort returns a range of one port.
func OnePort(port uint16) PortRange { return PortRange{port, port} }

// ParsePortRange reads PORT or FIRST-LAST.
func ParsePortRange(text string) (PortRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	low, err := strconv.ParseUint(first, 10, 16)
	high, err2 := strconv.ParseUint(last, 10, 16)
	r := PortRange{uint16(low), uint16(high)}
	if err != nil || err2 != nil || r.check() != nil {
		return PortRange{}, fmt.Errorf("%q: want a port from 1 to 65535, or a range such as 1024-65535", text)
	}
	return r, nil
}

// String returns the form read by ParsePortRange.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

func (r PortRange) has(port uint16) bool { return r.First <= port && port <= r.Last }

func (r PortRange) check() error {
	if r.First == 0 || r.First > r.Last {
		return fmt.Errorf("open ports %s of the host: want 1 to 65535, the lower one first", r)
	}
	return nil
}
