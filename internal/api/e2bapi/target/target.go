// Package target finds the target of a request from an E2B client. The target is a port of a
// sandbox, named by two headers or by the first label of the host name, or otherwise the control
// API. The package knows no sandboxes. The trap: clients choose the host name. Outside the daemon's
// own domain, only names that contain one of our IDs are taken for a sandbox's.
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

// Headers that name the sandbox and the port of a request.
const (
	HeaderSandbox = "E2b-Sandbox-Id"
	HeaderPort    = "E2b-Sandbox-Port"
)

// EnvdPort is the port on which E2B's clients expect the guest's daemon.
const EnvdPort = 49983

// Target is a port of a sandbox.
type Target struct {
	// ID is the engine's ID, with dashes. Shown is the client's form.
	ID, Shown string
	Port      uint16 // port in the guest
}

// ErrNone reports that a request is not for a sandbox.
var ErrNone = errors.New("the request is not for a sandbox")

// BadError reports a request for a sandbox without a valid sandbox or port.
type BadError struct{ text string }

func (b BadError) Error() string { return b.text }

func bad(format string, args ...any) error { return BadError{fmt.Sprintf(format, args...)} }

// Of returns the target of a request. Headers take precedence over the host. domain is the daemon's
// own domain, and may be empty.
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
	// numbered matches the first label of a host name of a port.
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

// Port returns a port of a sandbox with the engine's ID.
func Port(id string, port uint16) Target { return Target{ID: id, Shown: sandbox.DNSID(id), Port: port} }

// ID returns the engine's ID for a client's ID of a sandbox. The client's ID has no dashes, may
// have an older client's own ID as suffix, or is the engine's ID with dashes.
func ID(shown string) string {
	if full := sandbox.CanonicalID(sandbox.DNSID(shown)); strings.HasPrefix(shown, "sb-") && full == shown {
		return full
	}
	return sandbox.CanonicalID(first(shown))
}

// IsOurs reports whether a name without dashes is an ID in the engine's form.
func IsOurs(name string) bool { return sandbox.CanonicalID(name) != name }

// first returns the part before a dash. E2B's older clients append another ID to the sandbox's.
func first(id string) string {
	before, _, _ := strings.Cut(id, "-")
	return before
}
