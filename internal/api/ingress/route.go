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

// Headers that name the target of a request, for clients that cannot choose the host name. They are
// E2B's, so that its clients work.
const (
	HeaderSandbox = "E2b-Sandbox-Id"
	HeaderPort    = "E2b-Sandbox-Port"
)

// Target is a port of a sandbox.
type Target struct {
	Sandbox string // its ID, with dashes
	Port    uint16 // port in the guest
	TLS     bool   // the server there speaks TLS
}

// errNone reports that a request is not for a sandbox.
var errNone = errors.New("no route to a sandbox")

// badRoute reports a request for a sandbox without a valid sandbox or port.
type badRoute struct{ text string }

func (b badRoute) Error() string { return b.text }

func badRoutef(format string, args ...any) error { return badRoute{fmt.Sprintf(format, args...)} }

// route returns the target of a request. Headers take precedence over the host, as in E2B.
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

// ValidDomain reports whether a domain can be used in host names. An empty domain is valid and
// disables them.
func ValidDomain(domain string) bool {
	return domain == "" || aDomain.MatchString(domain)
}

var aDomain = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)

// numbered matches the first label of a host name of a port: 8080-sb5f3a00120001, or with dashes in
// the ID. Every other label with a number and a dash in front counts as a failed attempt to name a
// port.
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
	// E2B's older clients append another ID to the sandbox's.
	if first, _, more := strings.Cut(id, "-"); more && sandbox.CanonicalID(first) != first {
		t.Sandbox = sandbox.CanonicalID(first)
	}
	return t, nil
}
