package netnative

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/forkd/forkd/internal/net/netpolicy"
)

// rules is the number of rules of the large policy.
const rules = 1000

// verdictMark is in nanoseconds.
const verdictMark = 2000

// verdicts measures the time of a verdict: of the large policy, beside a policy without rules.
func (w *world) verdicts() ([]Figure, error) {
	large, err := netpolicy.Compile(largePolicy())
	if err != nil {
		return nil, err
	}
	none, err := netpolicy.Compile(netpolicy.Spec{Default: netpolicy.Public})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	facts := &netpolicy.Facts{}
	facts.Add("host77.example.com", netip.MustParseAddr(site), time.Hour, now)
	var worst, floor float64
	for _, addr := range []string{
		site + ":443", "9.100.1.1:1100", "[2606:7f::1]:1", "8.8.8.8:443", "8.8.8.8:22", "10.0.0.1:22",
	} {
		q := netpolicy.Query{Protocol: netpolicy.TCP, Addr: netip.MustParseAddrPort(addr), Facts: facts, Now: now}
		worst, floor = max(worst, w.verdict(large, q)), max(floor, w.verdict(none, q))
	}
	f := Figure{Name: "verdict_1000_rules", Unit: "ns", Value: worst}
	f = f.Beside(floor, Alone)
	return []Figure{f.Most(verdictMark)}, nil
}

// batch is the number of verdicts timed together. It is small, so the host does not interrupt every
// batch.
const batch = 500

// verdict returns the mean time per verdict of the quickest batch. Other load on the host only adds
// to it.
func (w *world) verdict(p *netpolicy.Policy, q netpolicy.Query) float64 {
	quickest := time.Duration(math.MaxInt64)
	for range max(1, w.Verdicts/batch) {
		began := time.Now()
		for range batch {
			p.Judge(q)
		}
		quickest = min(quickest, time.Since(began))
	}
	return float64(quickest.Nanoseconds()) / batch
}

// largePolicy returns a policy with names, domains, and networks of both families.
func largePolicy() (s netpolicy.Spec) {
	for i := range rules / 4 {
		s.Allow = append(s.Allow, fmt.Sprintf("host%d.example.com:443", i), fmt.Sprintf("*.zone%d.test:%d", i, 1000+i),
			fmt.Sprintf("9.%d.0.0/16:%d", i, 1000+i), fmt.Sprintf("2606:%x::/32", i))
	}
	return s
}
