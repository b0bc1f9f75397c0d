package launch

import (
	"crypto/sha256"
	"net"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// MAC returns a sandbox's hardware address: unicast, locally administered, and the same for every
// call, so it survives a rollback. It need not be unique: each guest is alone on its wire.
func MAC(sandboxID string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("forkd hardware address\n" + sandboxID))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02 // IEEE 802: the group bit off, the local bit on
	if guestnet.Reserved(mac) {
		mac[0] ^= 0x04
	}
	return mac
}
