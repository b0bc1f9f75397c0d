// Package portspec parses the ports of `forkd port-forward`: [ADDRESS:][LOCAL:]PORT, as in docker
// and kubectl. It opens no port. The trap: a single number is both ports, and an address requires a
// local port.
package portspec

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Spec is a local address and the port of the sandbox it leads to.
type Spec struct {
	Local string // address and port; port 0 chooses a free one
	Port  uint16 // port in the sandbox, 1 to 65535
}

// Parse parses one argument. otherwise is the address if the argument has none.
func Parse(arg, otherwise string) (Spec, error) {
	address, ports := split(arg, otherwise)
	local, remote, two := strings.Cut(ports, ":")
	if !two {
		remote = local
	}
	port, err := strconv.ParseUint(remote, 10, 16)
	if err != nil || port == 0 || strings.Contains(remote, ":") {
		return Spec{}, fmt.Errorf("port %q: want [ADDRESS:][LOCAL:]PORT, with PORT from 1 to 65535", arg)
	}
	if two && local == "" {
		local = "0"
	}
	if n, err := strconv.ParseUint(local, 10, 16); err != nil || strconv.FormatUint(n, 10) != local {
		return Spec{}, fmt.Errorf("port %q: LOCAL is %q, want 0 to 65535", arg, local)
	}
	return Spec{net.JoinHostPort(address, local), uint16(port)}, nil
}

// split separates the address, which ends before two colons. It may be in brackets.
func split(arg, otherwise string) (address, ports string) {
	if rest, ok := strings.CutPrefix(arg, "["); ok {
		if address, ports, ok := strings.Cut(rest, "]:"); ok && strings.Contains(ports, ":") {
			return address, ports
		}
	}
	if strings.Count(arg, ":") == 2 {
		address, ports, _ = strings.Cut(arg, ":")
		if address != "" {
			return address, ports
		}
	}
	return strings.Trim(otherwise, "[]"), arg
}
