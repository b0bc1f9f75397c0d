package ingress

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// Headers by which a client that cannot choose the host name says where a request goes.
// They are E2B's, so that its clients work.
const (
	HeaderSandbox = "E2b-Sandbox-Id"
	HeaderPort    = "E2b-Sandbox-Port"
)

// Target is a port of a sandbox.
type Target struct {
	Sandbox string // its id, with dashes
	Port    uint16
}

// errNone: a request is not for a sandbox.
var errNone = errors.New("no route to a sandbox")

// badRoute is a request that is for a sandbox and does not say which, or which port.
type badRoute struct{ text string }

func (b badRoute) Error() string { return b.text }

func badRoutef(format string, args ...any) error { return badRoute{fmt.Sprintf(format, args...)} }

// route finds what a request is for. Headers come before the host, as in E2B.
func route(r *http.Request, domain string) (Target, error) {
	id, port := r.Header.Get(HeaderSandbox), r.Header.Get(HeaderPort)
	switch {
	case id != "" && port != "":
		return target(id, port)
	case id != "" || port != "":
		return Target{}, badRoutef("want both headers, %s and %s, or none", HeaderSandbox, HeaderPort)
	}
	return hostTarget(r.Host, domain)
}

// ValidDomain reports whether a domain can be that of host names. An empty one is none, and
// valid.
func ValidDomain(domain string) bool {
	return domain == "" || aDomain.MatchString(domain)
}

var aDomain = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// numbered is the first label of a host name that is a port's: 8080-sb5f3a00120001, or with
// dashes in the id. What else has a number and a dash in front was meant to be one.
var numbered = regexp.MustCompile(`^([0-9]+)-(.+)$`)

func hostTarget(host, domain string) (Target, error) {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	label, ok := strings.CutSuffix(name, "."+domain)
	if !ok || strings.Contains(label, ".") {
		return Target{}, errNone
	}
	parts := numbered.FindStringSubmatch(label)
	if parts == nil {
		return Target{}, errNone
	}
	return target(parts[2], parts[1])
}

var anID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

func target(id, port string) (Target, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Target{}, badRoutef("port %q: want 1 to 65535", sandbox.Clip(port))
	}
	if !anID.MatchString(id) {
		return Target{}, badRoutef("sandbox %q: want its id, of small letters, digits and dashes", sandbox.Clip(id))
	}
	t := Target{Sandbox: sandbox.CanonicalID(id), Port: uint16(n)}
	// E2B's older clients put another id behind that of the sandbox.
	if first, _, more := strings.Cut(id, "-"); more && sandbox.CanonicalID(first) != first {
		t.Sandbox = sandbox.CanonicalID(first)
	}
	return t, nil
}
