package usage

import (
	"errors"
	"os"
	"slices"
)

// program is the name of a VMM's process.
const program = "forkd-vmm"

// VMM is the usage of a VMM since its start, with its guest.
type VMM struct {
	PID      int     `json:"pid"`       // on this host
	UserMS   float64 `json:"user_ms"`   // CPU time in user mode and in the guest; in steps of 10
	SystemMS float64 `json:"system_ms"` // CPU time in the kernel
	// Counters is nil if KVM's counters cannot be read.
	*Counters
}

// VMMs reads the usage of all VMMs on this host.
func (m Meter) VMMs() ([]VMM, error) {
	all, err := m.processes()
	if err != nil {
		return nil, err
	}
	counters, err := m.counters()
	if err != nil {
		return nil, err
	}
	list := []VMM{}
	for pid, st := range all {
		if st.Comm != program {
			continue
		}
		v := VMM{PID: pid, UserMS: millis(st.UTime), SystemMS: millis(st.STime)}
		if m.KVM() {
			c := counters[pid]
			v.Counters = &c
		}
		list = append(list, v)
	}
	return list, nil
}

// Read opens a meter for a single call of VMMs. The result is sorted by process.
func Read() (_ []VMM, err error) {
	dir, err := os.MkdirTemp("", "forkd-usage-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := Open(dir)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	list, err := m.VMMs()
	slices.SortFunc(list, func(a, b VMM) int { return a.PID - b.PID })
	return list, err
}

// Mean is the average usage of N VMMs.
type Mean struct {
	N                int
	UserMS, SystemMS float64
	*Counters        // nil if the counters of one VMM could not be read
}

// Between returns the mean usage of some processes' VMMs from one reading to the next. A VMM that
// is only in the later reading started meanwhile. Between leaves out a VMM that is missing in the
// later reading, because it has ended.
func Between(before, after []VMM, pids []int) Mean {
	was, is := byPID(before), byPID(after)
	mean, sum, kvm := Mean{}, Counters{}, true
	for _, pid := range pids {
		now, ok := is[pid]
		if !ok {
			continue
		}
		then := was[pid]
		mean.N++
		mean.UserMS += now.UserMS - then.UserMS
		mean.SystemMS += now.SystemMS - then.SystemMS
		if now.Counters == nil {
			kvm = false
			continue
		}
		sum.add(*now.Counters)
		if then.Counters != nil {
			sum.add(Counters{-then.Exits, -then.GuestFaults})
		}
	}
	if mean.N == 0 {
		return Mean{}
	}
	n := float64(mean.N)
	mean.UserMS, mean.SystemMS = mean.UserMS/n, mean.SystemMS/n
	if kvm {
		mean.Counters = &Counters{sum.Exits / n, sum.GuestFaults / n}
	}
	return mean
}

func byPID(list []VMM) map[int]VMM {
	m := make(map[int]VMM, len(list))
	for _, v := range list {
		m[v.PID] = v
	}
	return m
}
