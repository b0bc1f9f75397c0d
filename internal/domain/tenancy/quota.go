package tenancy

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

// ledger counts pending holdings and recent requests of keys.
type ledger struct {
	mu      sync.Mutex // guards the fields below; the only engine call under it is for a tenant's holdings
	pending map[string]holding
	forks   map[string]*forkRate // by key
	disk    map[string]diskUse   // by tenant
}

type holding struct{ sandboxes, memoryMiB int }

func (h holding) plus(o holding) holding {
	return holding{h.sandboxes + o.sandboxes, h.memoryMiB + o.memoryMiB}
}

// forkRate limits the children requested per minute.
type forkRate struct {
	perMinute int
	limiter   *rate.Limiter
}

func newLedger() ledger {
	return ledger{pending: map[string]holding{}, forks: map[string]*forkRate{}, disk: map[string]diskUse{}}
}

// stockRetry is a client's suggested wait until some sandbox may have ended.
const stockRetry = 10 * time.Second

// overQuota is an error with the time after which to try again.
type overQuota struct {
	error
	retry time.Duration
}

func (e *overQuota) Unwrap() error { return e.error }

// RetryAfter returns the value for the header of that name.
func (e *overQuota) RetryAfter() time.Duration { return e.retry }

// over returns the error for a used-up quota, with its name.
func (v *lens) over(quota string, retry time.Duration, format string, args ...any) error {
	err := sandbox.Detailed(sandbox.Errorf(sandbox.ErrQuota, sandbox.ReasonQuota, format, args...), "quota", quota)
	return &overQuota{err, max(retry, time.Second)}
}

func (v *lens) quotas() keys.Quotas {
	if v.p.KeyID == "" {
		return keys.Quotas{}
	}
	return v.t.cfg.Quotas(v.p.KeyID)
}

// admit lets a tenant create n sandboxes with this total memory. They count until they are listed or release is
// called.
func (v *lens) admit(n, memoryMiB int) (release func(), err error) {
	q := v.quotas()
	if n == 0 || q == (keys.Quotas{}) {
		return func() {}, nil
	}
	l := &v.t.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := v.roomLocked(holding{n, memoryMiB}, v.heldLocked("")); err != nil {
		return nil, err
	}
	if err := v.forkRateLocked(n, q.ForksPerMinute); err != nil {
		return nil, err
	}
	return l.pendLocked(v.p.Tenant, holding{n, memoryMiB}), nil
}

// roomLocked returns an error if more exceeds a tenant's quotas, given its present holdings.
func (v *lens) roomLocked(more, has holding) error {
	q, n, have := v.quotas(), more.sandboxes, has.sandboxes
	memoryMiB, haveMiB := more.memoryMiB, has.memoryMiB
	switch {
	case q.Sandboxes > 0 && have+n > q.Sandboxes:
		return v.over("sandboxes", stockRetry, "%d more sandboxes would be %d with pools, and the key's quota is %d",
			n, have+n, q.Sandboxes)
	case q.MemoryMiB > 0 && haveMiB+memoryMiB > q.MemoryMiB:
		return v.over("memory_mib", stockRetry,
			"%d MiB of guests' memory more would be %d MiB with shells of pools, and the key's quota "+
				"is %d MiB",
			memoryMiB, haveMiB+memoryMiB, q.MemoryMiB)
	}
	return nil
}

// pendLocked adds to a tenant's pending holdings until release is called.
func (l *ledger) pendLocked(tenant string, more holding) (release func()) {
	l.pending[tenant] = l.pending[tenant].plus(more)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := l.pending[tenant].plus(holding{-more.sandboxes, -more.memoryMiB})
		if now == (holding{}) {
			delete(l.pending, tenant)
			return
		}
		l.pending[tenant] = now
	}
}

func (v *lens) forkRateLocked(n, perMinute int) error {
	if perMinute == 0 {
		return nil
	}
	now, l := v.t.cfg.Now(), &v.t.ledger
	r := l.forks[v.p.KeyID]
	if r == nil || r.perMinute != perMinute {
		r = &forkRate{perMinute, rate.NewLimiter(rate.Limit(float64(perMinute)/60), perMinute)}
		l.forks[v.p.KeyID] = r
	}
	res := r.limiter.ReserveN(now, n)
	if !res.OK() {
		return v.over("forks_per_minute", time.Minute, "%d children at once are more than the key's %d forks a minute",
			n, perMinute)
	}
	if wait := res.DelayFrom(now); wait > 0 {
		res.CancelAt(now)
		return v.over("forks_per_minute", wait, "the key is limited to %d children per minute", perMinute)
	}
	return nil
}

// AdmitGuest lets a guest fork n children of its sandbox. It charges the quotas of the API key that created the
// root of the tree. The children count until they are listed or release is called.
func (t *Tenancy) AdmitGuest(ctx context.Context, of sandbox.Info, n int) (release func(), err error) {
	if of.Kin.Key == "" {
		return func() {}, nil
	}
	if !t.cfg.Alive(of.Kin.Key) {
		return nil, sandbox.Errorf(sandbox.ErrForbidden, "",
			"the API key of this sandbox was revoked or has expired: its sandboxes keep running, but cannot fork")
	}
	v := &lens{t, t.engine, principal.Principal{KeyID: of.Kin.Key, Tenant: of.Owner}}
	if err := v.roomOnDisk(ctx); err != nil {
		return nil, err
	}
	return v.admit(n, n*of.Shape.MemoryMiB)
}

// hostPorts returns the host's ports that the caller may name in a policy. The operator without a key may name
// all ports; other callers may name the ones granted by the key. Only a tenant's limits have a ceiling.
func (v *lens) hostPorts() netpolicy.HostGrant {
	if v.p.KeyID == "" && v.p.Operator() {
		return netpolicy.HostGrant{All: true}
	}
	g := v.t.cfg.HostPorts(v.p.KeyID)
	g.AnyLimits = v.p.Operator()
	return g
}
