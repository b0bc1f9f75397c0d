package audit

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
)

// Names of chains. The first chain, with an empty name, holds the operator's changes and the lines of the
// log itself. Each chain rotates its own files, so a writer can only remove its own lines.
const (
	chainActivity  = "activity"  // the operator's reads and refusals, and acts of its sandboxes
	chainAnonymous = "anonymous" // requests without a valid credential
	chainTraffic   = "traffic"   // requests from outside to servers in sandboxes
	chainTenant    = "tenant-"   // begins the name of a tenant's chain of changes
	dotActivity    = "." + chainActivity
)

// tenantName is the names that package keys gives out.
var tenantName = regexp.MustCompile(`^[a-z0-9_]{1,24}$`)

// chainName matches all chains but the first.
var chainName = regexp.MustCompile(`^(activity|anonymous|traffic|tenant-([a-z0-9_]{1,24}|OTHERS|X[0-9a-f]{16})(\.activity)?)$`)

// ingress is the Principal of requests to servers in sandboxes.
const ingress = "ingress"

// sandboxToken is the Principal of E2B's access token of a sandbox, which the sandbox's guest may know.
const sandboxToken = "sandbox token"

// chainOf returns the chain that an entry belongs to.
func chainOf(e Entry) string {
	switch {
	case strings.HasPrefix(e.Action, "audit."):
		return ""
	case e.Anonymous && e.Result != Refused && e.Sandbox != "":
		return chainTraffic
	case e.Anonymous:
		return chainAnonymous
	}
	// An authenticated request that changed something has a request ID; acts of guests have none.
	change := !e.Read && e.Result != Refused && e.Principal != sandboxToken && !isGuestAct(e)
	switch {
	case e.Tenant == "" && change:
		return ""
	case e.Tenant == "":
		return chainActivity
	case change:
		return chainTenant + tenantOf(e.Tenant)
	}
	return chainTenant + tenantOf(e.Tenant) + dotActivity
}

// isGuestAct reports whether a sandbox or its traffic caused an entry.
func isGuestAct(e Entry) bool {
	switch e.Principal {
	case "guest", "use", "forkd-net", "deadline", "idle", "pressure", ingress:
		return true
	}
	return false
}

// tenantOf returns a tenant's name as part of a file name.
func tenantOf(tenant string) string {
	if tenantName.MatchString(tenant) {
		return tenant
	}
	h := fnv.New64a()
	h.Write([]byte(tenant))
	return fmt.Sprintf("X%016x", h.Sum64())
}

// pathOf returns the newest file of a chain.
func pathOf(path, chain string) string {
	if chain == "" {
		return path
	}
	return path + "." + chain
}

// onlyChanges reports whether only changes by authenticated requests rotate a chain.
func onlyChanges(chain string) bool {
	return chain == "" || strings.HasPrefix(chain, chainTenant) && !strings.HasSuffix(chain, dotActivity)
}
