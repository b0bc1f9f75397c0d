package usage

import (
	"errors"
	"os"
	"slices"
)

// program is the name that a VMM's process has.
const program = "forkd-vmm"

// VMM is what one has used since it was started, with its guest.
type VMM struct {
	PID      int     `json:"pid"`       // on this host
	UserMS   float64 `json:"user_ms"`   // of the CPUs, the guest's included; in steps of 10
	SystemMS float64 `json:"system_ms"` // in the kernel
	// Counters are nil if KVM's cannot be read.
	*Counters
}

// VMMs reads all of this host.
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

// Read is VMMs with a meter for this once, sorted by process.
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

// Mean is what each of N VMMs used on average.
type Mean struct {
	N                int
	UserMS, SystemMS float64
	*Counters        // nil if those of one could not be read
}

// Between is what the VMMs of some processes used from one reading to the next. One that is in the later alone
// was started meanwhile; one that is in neither has ended, and is left out.
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
