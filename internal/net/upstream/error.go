package upstream

import "fmt"

// Why is a kind of failure.
type Why uint8

// Failures of the proxy itself, and its reports about the far end.
const (
	Down        Why = iota // no proxy listens, or it does not answer
	Broken                 // it ended the handshake, or took too long
	NoProxy                // the server uses another protocol
	Unknown                // it refuses us, or our user name and password
	Failed                 // it failed without a reason
	Forbidden              // its own rules forbid the connection
	NetUnreach             // no route to the network
	HostUnreach            // no route to the host
	Refused                // the host refused
	Expired                // a hop limit was exceeded
	Late                   // no answer in time; set by the caller
	Unsupported            // it cannot connect, or not with this address family
)

// replies are the reply codes of RFC 1928, section 6.
var replies = map[byte]struct {
	why  Why
	text string
}{
	1: {Failed, "general failure"},
	2: {Forbidden, "its rules forbid it"},
	3: {NetUnreach, "network unreachable"},
	4: {HostUnreach, "host unreachable"},
	5: {Refused, "connection refused"},
	6: {Expired, "TTL expired"},
	7: {Unsupported, "it cannot connect"},
	8: {Unsupported, "it cannot reach addresses of this family"},
}

// Error is the reason for a failed connection.
type Error struct {
	Why   Why    // the kind, for programs
	Proxy string // host and port
	Text  string // end of a sentence that begins with "upstream proxy" and Proxy
	Err   error  // of the connection to the proxy; nil if the proxy answered
}

func (e *Error) Error() string { return fmt.Sprintf("upstream proxy %s %s", e.Proxy, e.Text) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func (p *Proxy) says(why Why, text string) error {
	return &Error{Why: why, Proxy: p.url.Address(), Text: text}
}

// refused returns the error for a reply code.
func (p *Proxy) refused(code byte, to Target) error {
	r, known := replies[code]
	if !known {
		r.why, r.text = Failed, fmt.Sprintf("reply %d", code)
	}
	return p.says(r.why, fmt.Sprintf("did not reach %s: %s", to, r.text))
}
