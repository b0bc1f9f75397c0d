package sandbox

import (
	"regexp"
	"strings"
)

// dnsID is a sandbox's id without its dashes. The first part has eight digits, so it
// can be told where the dashes were.
var dnsID = regexp.MustCompile(`^sb([0-9a-f]{8})([0-9]{4,})$`)

// DNSID is a sandbox's id as host names have it: without dashes, as a dash stands
// between port and id there.
func DNSID(id string) string { return strings.ReplaceAll(id, "-", "") }

// CanonicalID is the id that a name stands for: of an id without dashes the one with
// them, else the name itself.
func CanonicalID(name string) string {
	parts := dnsID.FindStringSubmatch(name)
	if parts == nil {
		return name
	}
	return "sb-" + parts[1] + "-" + parts[2]
}
