package sandbox

import (
	"encoding/base32"
	"regexp"
	"strings"
)

// IDBytes is the number of random bytes in an id. Public ports are open to every client with the sandbox's id, so
// 80 bits keep ids from being guessed.
const IDBytes = 10

// IDPattern matches the ids of sandboxes, including the format of earlier daemons: 32 random bits, a dash and the
// index of the child.
const IDPattern = `sb-(?:[a-z2-7]{16}|[0-9a-f]{8}-[0-9]{4,7})`

// ValidID reports whether s is the id of a sandbox.
var ValidID = regexp.MustCompile(`^` + IDPattern + `$`).MatchString

var idDigits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewID returns the id encoding IDBytes random bytes. It fits into a host name together with a port.
func NewID(random []byte) string { return "sb-" + idDigits.EncodeToString(random[:IDBytes]) }

// dnsID matches an id without its dashes. The two forms differ in length, so their dashes are known.
var dnsID = regexp.MustCompile(`^sb(?:([a-z2-7]{16})|([0-9a-f]{8})([0-9]{4,7}))$`)

// DNSID returns the id for use in host names. It has no dashes, because a dash separates port and id there.
func DNSID(id string) string { return strings.ReplaceAll(id, "-", "") }

// CanonicalID returns the id for a name without dashes. It returns other names unchanged.
func CanonicalID(name string) string {
	switch parts := dnsID.FindStringSubmatch(name); {
	case parts == nil:
		return name
	case parts[1] != "":
		return "sb-" + parts[1]
	default:
		return "sb-" + parts[2] + "-" + parts[3]
	}
}
