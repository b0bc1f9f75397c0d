// Package target finds what a request of an E2B client is for: a port of a sandbox, named by
// two headers or by the first label of the host name, or else the control API. It knows no
// sandboxes. The trap: a host name is the client's to choose, so outside of the daemon's own
// domain only names with an id of ours in them are taken for a sandbox's.
package target

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

// Headers by which a client says which port of which sandbox a request is for.
const (
	HeaderSandbox = "E2b-Sandbox-Id"
	HeaderPort    = "E2b-Sandbox-Port"
)

// EnvdPort is the port on which E2B's clients expect the guest's daemon.
const EnvdPort = 49983

// Target is a port of a sandbox.
type Target struct {
	// ID is the engine's, with dashes; Shown is how clients have it.
	ID, Shown string
	Port      uint16
}

// ErrNone: a request is not for a sandbox.
var ErrNone = errors.New("the request is not for a sandbox")

// BadError is a request that is for a sandbox and does not say which, or which port.
type BadError struct{ text string }

func (b BadError) Error() string { return b.text }

func bad(format string, args ...any) error { return BadError{fmt.Sprintf(format, args...)} }

// Of finds what a request is for. Headers come before the host. domain is the daemon's own,
// and may be empty.
func Of(r *http.Request, domain string) (Target, error) {
	id, port := r.Header.Get(HeaderSandbox), r.Header.Get(HeaderPort)
	switch {
	case id != "" && port != "":
		return parse(id, port)
	case id != "":
		return Target{}, bad("missing header %s", HeaderPort)
	case port != "":
		return Target{}, bad("missing header %s", HeaderSandbox)
	}
	return ofHost(r.Host, domain)
}

var (
	// numbered is the first label of a host name that is a port's.
	numbered = regexp.MustCompile(`^([0-9]+)-(.+)$`)
	anID     = regexp.MustCompile(`^[a-z0-9]{1,64}$`)
)

func ofHost(host, domain string) (Target, error) {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	label, rest, dotted := strings.Cut(strings.ToLower(strings.TrimSuffix(name, ".")), ".")
	parts := numbered.FindStringSubmatch(label)
	if !dotted || parts == nil {
		return Target{}, ErrNone
	}
	if rest != domain && !IsOurs(first(parts[2])) {
		return Target{}, ErrNone
	}
	return parse(parts[2], parts[1])
}

func parse(id, port string) (Target, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Target{}, bad("invalid sandbox port %q", sandbox.Clip(port))
	}
	full := ID(id)
	if !IsOurs(sandbox.DNSID(full)) && !anID.MatchString(id) {
		return Target{}, bad("invalid sandbox id %q", sandbox.Clip(id))
	}
	return Target{ID: full, Shown: sandbox.DNSID(full), Port: uint16(n)}, nil
}

// Port is a port of a sandbox by its id in the engine.
func Port(id string, port uint16) Target { return Target{ID: id, Shown: sandbox.DNSID(id), Port: port} }

// ID is the engine's id of what a client calls a sandbox: its id without dashes, with an
// older client's own id behind it, or with dashes as the engine has it.
func ID(shown string) string {
	if full := sandbox.CanonicalID(sandbox.DNSID(shown)); strings.HasPrefix(shown, "sb-") && full == shown {
		return full
	}
	return sandbox.CanonicalID(first(shown))
}

// IsOurs reports whether a name without dashes is an id as the engine makes them.
func IsOurs(name string) bool { return sandbox.CanonicalID(name) != name }

// first is the part before a dash: E2B's older clients put another id behind the sandbox's.
func first(id string) string {
	before, _, _ := strings.Cut(id, "-")
	return before
}
