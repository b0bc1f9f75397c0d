package sandbox

import (
	"crypto/rand"
	"encoding/hex"
)

// PortAccess is the rule for requests from outside to a sandbox's ports. The zero value refuses every request.
type PortAccess struct {
	// Public admits every request.
	Public bool
	// Token admits requests with this token. An empty token admits none.
	Token string
}

// PortAccess returns the rule for the sandbox's ports.
func (i Info) PortAccess() PortAccess {
	return PortAccess{Public: i.PublicPorts, Token: i.TrafficToken}
}

// PrivatePorts reports whether requests from outside must show a token.
func (i Info) PrivatePorts() bool { return !i.PublicPorts }

// trafficTokenBytes is the size of a token before it is written in hex.
const trafficTokenBytes = 32

// ClosePorts gives a private sandbox without a token a new one, and reports whether it did. Records written
// before PublicPorts existed have neither.
func (i *Info) ClosePorts() bool {
	if i.PublicPorts || i.TrafficToken != "" {
		return false
	}
	var b [trafficTokenBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	i.TrafficToken = hex.EncodeToString(b[:])
	return true
}
