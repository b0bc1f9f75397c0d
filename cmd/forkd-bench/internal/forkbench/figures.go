// Package forkbench is the benchmark of a fork as seen by a user of the API. Forks alternate in one
// run with the floor of the VMs' host. The package owns the order of the measurement and the
// figures; it prints no output. The trap: figures of different runs are not comparable.
package forkbench

import (
	"slices"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/usage"
)

// Figures holds the result: medians over the rounds (docs/inside/formats/json-output.md).
type Figures struct {
	N                    int     `json:"n"`
	OK                   int     `json:"ok"` // of the worst round
	Rounds               int     `json:"rounds"`
	ArmedWallMS          float64 `json:"armed_wall_ms"`
	ReadyWallMS          float64 `json:"ready_wall_ms"`
	ReadyP50MS           float64 `json:"ready_ms_p50"`
	ReadyP99MS           float64 `json:"ready_ms_p99"`
	AnswerP50MS          float64 `json:"answer_ms_p50,omitempty"` // request to the answer of each child's first eval; absent without a warm Python
	AnswerP99MS          float64 `json:"answer_ms_p99,omitempty"`
	OneArmedMS           float64 `json:"one_armed_ms"`            // until the child of a fork of one is armed
	OneReadyMS           float64 `json:"one_ready_ms"`            // until it is ready, by the client's clock
	OneAnswerMS          float64 `json:"one_answer_ms,omitempty"` // request to the answer of its first eval; absent without a warm Python
	FloorWallMS          float64 `json:"floor_wall_ms,omitempty"` // absent, like Ratio, if the VMs' host is unknown
	Ratio                float64 `json:"ratio,omitempty"`         // armed to floor
	EvalP50MS            float64 `json:"eval_ms_p50"`             // in the daemon, from request to answer
	EvalDaemonP50MS      float64 `json:"eval_daemon_ms_p50"`      // EvalP50MS without the guest's share
	VMMAnonKiB           int64   `json:"vmm_anon_kib"`
	GuestDirtyKiB        int64   `json:"guest_dirty_kib"`
	PSSKiB               int64   `json:"pss_kib"`
	MemAvailableDeltaKiB int64   `json:"mem_available_delta_kib,omitempty"` // per child
	ToReady              *Use    `json:"to_ready,omitempty"`                // child of n; absent if the host is unknown
	ToAnswer             *Use    `json:"to_answer,omitempty"`               // as ToReady; needs a warm Python
	OneToReady           *Use    `json:"one_to_ready,omitempty"`            // of a fork of one child
	OneToAnswer          *Use    `json:"one_to_answer,omitempty"`
	Pool                 int     `json:"pool"`
	Where                string  `json:"where"`
	CPUs                 int     `json:"cpus,omitempty"`

	many, one times // of all rounds, for the plot
}

// Use is the average usage of a child's VMM, from the fork's request until all children were ready
// or had answered, and usage was read. The start of its shell is not included.
type Use struct {
	UserMS   float64 `json:"user_ms"` // CPU time, the guest's included
	SystemMS float64 `json:"system_ms"`
	// Counters is nil if KVM's counters cannot be read.
	*usage.Counters
}

// use returns the median of each value over the rounds. It returns nil if no usage was read.
func use(rounds []round, get func(round) usage.Mean) *Use {
	var user, system, exits, faults []float64
	for _, r := range rounds {
		m := get(r)
		if m.N == 0 {
			continue
		}
		user, system = append(user, m.UserMS), append(system, m.SystemMS)
		if m.Counters != nil {
			exits, faults = append(exits, m.Exits), append(faults, m.GuestFaults)
		}
	}
	if len(user) == 0 {
		return nil
	}
	u := &Use{UserMS: median(user), SystemMS: median(system)}
	if len(exits) > 0 {
		u.Counters = &usage.Counters{Exits: median(exits), GuestFaults: median(faults)}
	}
	return u
}

func median(v []float64) float64 {
	slices.Sort(v)
	return quantile(v, 0.5)
}

// times holds times of children, in milliseconds from the fork's request.
type times struct {
	armed, ready, answered []float64 // each sorted once they are summarised
}

func (t *times) add(more times) {
	t.armed, t.ready = append(t.armed, more.armed...), append(t.ready, more.ready...)
	t.answered = append(t.answered, more.answered...)
}

func (t *times) sort() {
	for _, v := range [][]float64{t.armed, t.ready, t.answered} {
		slices.Sort(v)
	}
}

// summarise returns the median of each figure over the rounds, and the median of the rounds'
// ratios.
func summarise(rounds []round) Figures {
	f := Figures{N: rounds[0].n, OK: rounds[0].ok, Rounds: len(rounds), Pool: rounds[0].pool}
	for _, r := range rounds {
		f.OK, f.Pool = min(f.OK, r.ok), min(f.Pool, r.pool)
		f.many.add(times{armed: r.childArmed, ready: r.ready, answered: r.answered})
		f.one.add(r.one.times)
	}
	f.many.sort()
	f.one.sort()
	f.OneArmedMS, f.OneReadyMS = quantile(f.one.armed, 0.5), quantile(f.one.ready, 0.5)
	f.OneAnswerMS = quantile(f.one.answered, 0.5)
	of := func(get func(round) float64) float64 {
		var v []float64
		for _, r := range rounds {
			v = append(v, get(r))
		}
		return median(v)
	}
	f.ArmedWallMS = of(func(r round) float64 { return r.armed })
	f.ReadyWallMS = of(func(r round) float64 { return r.readyWall })
	f.ReadyP50MS = of(func(r round) float64 { return quantile(r.ready, 0.5) })
	f.ReadyP99MS = of(func(r round) float64 { return quantile(r.ready, 0.99) })
	f.AnswerP50MS = of(func(r round) float64 { return quantile(r.answered, 0.5) })
	f.AnswerP99MS = of(func(r round) float64 { return quantile(r.answered, 0.99) })
	f.FloorWallMS = of(func(r round) float64 { return r.floor })
	if f.FloorWallMS > 0 {
		f.Ratio = of(func(r round) float64 { return r.armed / r.floor })
	}
	f.EvalP50MS = of(func(r round) float64 { return quantile(r.eval, 0.5) })
	f.EvalDaemonP50MS = of(func(r round) float64 { return quantile(r.evalDaemon, 0.5) })
	f.VMMAnonKiB = int64(of(func(r round) float64 { return r.vmmAnon }))
	f.GuestDirtyKiB = int64(of(func(r round) float64 { return r.guestDirty }))
	f.PSSKiB = int64(of(func(r round) float64 { return r.pss }))
	f.MemAvailableDeltaKiB = int64(of(func(r round) float64 { return r.memDelta }))
	f.ToReady = use(rounds, func(r round) usage.Mean { return r.toReady })
	f.ToAnswer = use(rounds, func(r round) usage.Mean { return r.toAnswer })
	f.OneToReady = use(rounds, func(r round) usage.Mean { return r.one.toReady })
	f.OneToAnswer = use(rounds, func(r round) usage.Mean { return r.one.toAnswer })
	return f
}

// quantile returns the nearest rank in a sorted list, or 0 for an empty list.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
