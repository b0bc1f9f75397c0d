package audit

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
)

// Names of chains. The first chain, with an empty name, holds the operator's changes and the lines of the log
// itself. Each chain rolls over its own files, so a writer can only remove its own lines.
const (
	chainActivity  = "activity"  // the operator's reads and refusals, and acts of the operator's sandboxes
	chainAnonymous = "anonymous" // requests without a valid credential
	chainTraffic   = "traffic"   // requests from outside to servers in sandboxes
	chainTenant    = "tenant-"   // prefix of a tenant's chain of changes
	chainSeals     = "seals"     // seals of the other chains
	dotActivity    = "." + chainActivity
)

// tenantName matches the names of tenants that package keys allows.
var tenantName = regexp.MustCompile(`^[a-z0-9_]{1,24}$`)

// chainName matches the name of every chain except the first.
var chainName = regexp.MustCompile(`^(activity|anonymous|traffic|seals|tenant-([a-z0-9_]{1,24}|OTHERS|X[0-9a-f]{16})(\.activity)?)$`)

// ingress is the Principal for requests to servers in sandboxes.
const ingress = "ingress"

// sandboxToken is the Principal for E2B's access token of a sandbox. The sandbox's guest may know this token.
const sandboxToken = "sandbox token"

// chainOf returns an entry's chain.
func chainOf(e Entry) string {
	switch {
	case strings.HasPrefix(e.Action, "audit."):
		return ""
	case e.Anonymous && e.Result != Refused && e.Sandbox != "":
		return chainTraffic
	case e.Anonymous:
		return chainAnonymous
	}
	// An authenticated request that changes state has a request ID; acts of guests have none.
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
