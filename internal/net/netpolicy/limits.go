package netpolicy

import (
	"errors"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/leaf/pace"
)

// Defaults of Limits. Bytes are unlimited.
const (
	DefaultFlows          = 1024
	DefaultFlowsPerSecond = 256
	DefaultDNSPerSecond   = 100
)

// Highest limits that a policy may set.
const (
	mostFlows      = 65536
	mostPerSecond  = 100000
	leastBandwidth = 1024 // bytes a second; below it a TCP segment takes more than a second
)

func (l Limits) check() error {
	switch {
	case l.Flows < 0 || l.Flows > mostFlows:
		return errors.New("limits: flows is a number from 1 to 65536")
	case l.FlowsPerSecond < 0 || l.FlowsPerSecond > mostPerSecond:
		return errors.New("limits: flows_per_second is a number from 1 to 100000")
	case l.DNSPerSecond < 0 || l.DNSPerSecond > mostPerSecond:
		return errors.New("limits: dns_per_second is a number from 1 to 100000")
	case l.BytesPerSecond < 0 || l.BytesPerSecond > 0 && l.BytesPerSecond < leastBandwidth:
		return errors.New("limits: bytes_per_second is at least 1024, or left away for no limit")
	}
	return nil
}

// orDefaults replaces zero values by the defaults. Bytes stay zero, which means unlimited.
func (l Limits) orDefaults() Limits {
	if l.Flows == 0 {
		l.Flows = DefaultFlows
	}
	if l.FlowsPerSecond == 0 {
		l.FlowsPerSecond = DefaultFlowsPerSecond
	}
	if l.DNSPerSecond == 0 {
		l.DNSPerSecond = DefaultDNSPerSecond
	}
	return l
}

// atMost returns the lower of each value. Zero in bound means no bound.
func (l Limits) atMost(bound Limits) Limits {
	lower := func(a, b int) int {
		if b != 0 && (a == 0 || b < a) {
			return b
		}
		return a
	}
	l.Flows = lower(l.Flows, bound.Flows)
	l.FlowsPerSecond = lower(l.FlowsPerSecond, bound.FlowsPerSecond)
	l.DNSPerSecond = lower(l.DNSPerSecond, bound.DNSPerSecond)
	if b := bound.BytesPerSecond; b != 0 && (l.BytesPerSecond == 0 || b < l.BytesPerSecond) {
		l.BytesPerSecond = b
	}
	return l
}

// Budget holds the unused part of a sandbox's limits. It has no clock of its own. It is safe for
// concurrent use.
type Budget struct {
	mu     sync.Mutex // guards the fields below; the buckets have their own locks
	limits Limits
	flows  int
	fresh  *pace.Bucket // new flows
	dns    *pace.Bucket
	in     *pace.Bucket // bytes to the guest; nil if unlimited
	out    *pace.Bucket // bytes from the guest; nil if unlimited
}

// NewBudget returns a full budget. Zero values in the limits mean the defaults.
func NewBudget(l Limits) *Budget {
	b := &Budget{}
	b.SetLimits(l)
	return b
}

// SetLimits sets new limits, with full buckets for changed ones. Existing flows above a new limit
// stay.
func (b *Budget) SetLimits(l Limits) {
	l = l.orDefaults()
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.FlowsPerSecond != b.limits.FlowsPerSecond {
		b.fresh = pace.New(l.FlowsPerSecond, l.FlowsPerSecond)
	}
	if l.DNSPerSecond != b.limits.DNSPerSecond {
		b.dns = pace.New(l.DNSPerSecond, l.DNSPerSecond)
	}
	if l.BytesPerSecond != b.limits.BytesPerSecond {
		b.in, b.out = byteBucket(l.BytesPerSecond), byteBucket(l.BytesPerSecond)
	}
	b.limits = l
}

func byteBucket(rate int64) *pace.Bucket {
	if rate == 0 {
		return nil
	}
	return pace.New(int(rate), int(rate))
}

// BeginFlow takes a flow from the budget. The reason is empty on success. Return the flow with
// EndFlow.
func (b *Budget) BeginFlow(now time.Time) Reason {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flows >= b.limits.Flows {
		return LimitFlows
	}
	if !b.fresh.Try(now) {
		return LimitRate
	}
	b.flows++
	return ""
}

// EndFlow returns a flow. Call it once per successful BeginFlow.
func (b *Budget) EndFlow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flows = max(0, b.flows-1)
}

// Flows returns the number of current flows.
func (b *Budget) Flows() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flows
}

// TakeDNS takes a query from the budget and reports whether there was one.
func (b *Budget) TakeDNS(now time.Time) bool {
	b.mu.Lock()
	dns := b.dns
	b.mu.Unlock()
	return dns.Try(now)
}

// In takes n bytes to the guest, and returns how long to wait before more.
func (b *Budget) In(now time.Time, n int) time.Duration { return b.bytes(now, n, false) }

// Out takes n bytes from the guest, and returns how long to wait before more.
func (b *Budget) Out(now time.Time, n int) time.Duration { return b.bytes(now, n, true) }

func (b *Budget) bytes(now time.Time, n int, out bool) time.Duration {
	b.mu.Lock()
	bucket := b.in
	if out {
		bucket = b.out
	}
	b.mu.Unlock()
	if bucket == nil {
		return 0
	}
	return bucket.TakeN(now, n)
}
