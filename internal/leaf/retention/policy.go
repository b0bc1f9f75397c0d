package retention

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Values of labels for no rule, where a default would set one.
const (
	Never = "never" // of Expires
	All   = "all"   // of KeepLast
)

// Defaults are the rules for snapshots of sandboxes that were requested without rules. The zero value sets no rule.
type Defaults struct {
	Expire   time.Duration // from the snapshot's creation; 0: never
	KeepLast int           // 0: all
	// MaxExpire limits the expiry that a tenant can request, and forbids it to pin. 0: no limit.
	MaxExpire time.Duration
}

// Policy has the defaults of each tenant. The zero value sets no rule.
type Policy struct {
	daemon  Defaults
	tenants map[string]Defaults
}

// maxPolicies limits the number of tenants with defaults of their own.
const maxPolicies = 10_000

// ParsePolicy reads settings such as "expire=168h,keep-last=10" and "team_a:expire=24h,max-expire=720h". A tenant
// with a setting of its own does not get the daemon's. isTenant reports whether a tenant can have a name.
func ParsePolicy(settings []string, isTenant func(string) bool) (Policy, error) {
	p := Policy{tenants: map[string]Defaults{}}
	if len(settings) > maxPolicies {
		return p, fmt.Errorf("%d settings are too many: at most %d", len(settings), maxPolicies)
	}
	whole := false
	for _, text := range settings {
		tenant, rules, of := strings.Cut(text, ":")
		if !of {
			tenant, rules = "", text
		}
		_, twice := p.tenants[tenant]
		switch {
		case of && !isTenant(tenant):
			return p, fmt.Errorf("%.80q: want [TENANT:]RULE=VALUE,...: %.30q is no name of a tenant", text, tenant)
		case twice, !of && whole:
			return p, fmt.Errorf("%.80q: there is a setting for the same tenants already", text)
		}
		d, err := parseDefaults(rules)
		if err != nil {
			return p, fmt.Errorf("%.80q: %w", text, err)
		}
		if of {
			p.tenants[tenant] = d
			continue
		}
		p.daemon, whole = d, true
	}
	return p, nil
}

func parseDefaults(text string) (d Defaults, err error) {
	seen := map[string]bool{}
	for rule := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(rule, "=")
		if seen[key] {
			return d, fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		switch key {
		case "expire":
			d.Expire, err = age(value)
		case "max-expire":
			d.MaxExpire, err = age(value)
		case "keep-last":
			if d.KeepLast, err = strconv.Atoi(value); err != nil || d.KeepLast < 1 || d.KeepLast > MaxKeepLast {
				err = fmt.Errorf("want 1 to %d", MaxKeepLast)
			}
		default:
			return d, fmt.Errorf("%.30q is no rule: want expire, keep-last or max-expire", key)
		}
		if err != nil {
			return d, fmt.Errorf("%s=%.30s: %w", key, value, err)
		}
	}
	if d.MaxExpire > 0 && d.Expire > d.MaxExpire {
		return d, fmt.Errorf("expire=%s is beyond max-expire=%s", d.Expire, d.MaxExpire)
	}
	return d, nil
}

func age(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxAge {
		return 0, fmt.Errorf("want a duration such as 168h, of at most 100 years")
	}
	return d, nil
}

// For returns the defaults of a tenant; of the operator, if tenant is empty.
func (p Policy) For(tenant string) Defaults {
	if d, ok := p.tenants[tenant]; ok {
		return d
	}
	return p.daemon
}

// Labels returns the labels with rules to add to a new snapshot with these labels. Rules of the request stay as they
// are. A pinned snapshot gets no rule.
func (d Defaults) Labels(set map[string]string) map[string]string {
	add := map[string]string{}
	if pin, ok := set[Pin]; ok && pin != "false" {
		return add
	}
	if _, has := set[Expires]; !has {
		switch {
		case d.Expire > 0:
			add[Expires] = d.Expire.String()
		case d.MaxExpire > 0:
			add[Expires] = d.MaxExpire.String()
		}
	}
	if _, has := set[KeepLast]; !has && d.KeepLast > 0 {
		add[KeepLast] = strconv.Itoa(d.KeepLast)
	}
	return add
}

// Bound returns an error if a tenant cannot give these labels to a snapshot made at that time.
func (d Defaults) Bound(set map[string]string, made time.Time) error {
	if d.MaxExpire == 0 {
		return nil
	}
	r, err := Of(set, made)
	switch {
	case err != nil:
		return err
	case r.Pinned:
		return fmt.Errorf("snapshots of this tenant expire after at most %s, so it cannot pin them", d.MaxExpire)
	case r.Expires.IsZero(), r.Expires.After(made.Add(d.MaxExpire)):
		return fmt.Errorf("snapshots of this tenant expire after at most %s", d.MaxExpire)
	}
	return nil
}
