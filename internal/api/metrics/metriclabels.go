package metrics

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/requestinfo"
)

// Values of labels outside the documented lists. Names of tenants have no parentheses.
const (
	labelOther    = "other"
	labelNone     = "none"
	operatorLabel = "(operator)"
	othersLabel   = "(other)"
)

// maxTenantLabels limits the tenants with series of their own. The first ones keep theirs until the
// daemon ends; all further tenants share one.
const maxTenantLabels = 100

// tenantLabels chooses the label of each tenant.
type tenantLabels struct {
	known sync.Map // names

	mu sync.Mutex // guards n; taken only for unknown tenants
	n  int
}

func (t *tenantLabels) of(tenant string) string {
	if tenant == "" {
		return operatorLabel
	}
	if _, ok := t.known.Load(tenant); ok {
		return tenant
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.known.Load(tenant); ok {
		return tenant
	}
	if t.n == maxTenantLabels {
		return othersLabel
	}
	t.n++
	t.known.Store(tenant, true)
	return tenant
}

// oneOf returns a value if it is in a list, and "other" otherwise.
func oneOf[T ~string](value T, list ...T) string {
	for _, v := range list {
		if v == value {
			return string(v)
		}
	}
	return labelOther
}

// knownReasons returns the values of the label reason.
func knownReasons() map[api.Reason]bool {
	known := map[api.Reason]bool{}
	for _, row := range api.Reasons() {
		known[row.Reason] = true
	}
	return known
}

// CodeLabel returns a code as a label.
func CodeLabel(c api.Code) string {
	for _, row := range api.Codes() {
		if row.Code == c {
			return string(c)
		}
	}
	return labelOther
}

// statusClass returns the class of a status, such as 2xx.
func statusClass(status int) string {
	if status < 100 || status > 599 {
		return labelOther
	}
	return strconv.Itoa(status/100) + "xx"
}

// statusLabel returns a status. Programs in sandboxes choose the statuses of two routes, so these
// have the class.
func statusLabel(route string, status int) string {
	switch {
	case route == requestinfo.IngressRoute, route == requestinfo.AgentRoute:
		return statusClass(status)
	case http.StatusText(status) == "":
		return labelOther
	}
	return strconv.Itoa(status)
}

func MethodLabel(method string) string {
	return oneOf(method, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete)
}

// poolSizes are the classes of pools, by the guest's memory in MiB.
var poolSizes = [...]struct {
	mib  int
	name string
}{{256, "256MiB"}, {512, "512MiB"}, {1 << 10, "1GiB"}, {2 << 10, "2GiB"}, {4 << 10, "4GiB"}, {8 << 10, "8GiB"}}

// largerPool is the class of all other pools.
const largerPool = "larger"

// poolSize returns the class of a pool, the smallest that has room for the guest's memory.
func poolSize(memoryMiB int) string {
	for _, s := range poolSizes {
		if memoryMiB <= s.mib {
			return s.name
		}
	}
	return largerPool
}
