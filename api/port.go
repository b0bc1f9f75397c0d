package api

// UpgradeTCP is the protocol of GET /v1/sandboxes/{id}/ports/{port}/connect: after the
// answer 101 the connection is that of a server in the guest, bytes both ways.
const UpgradeTCP = "forkd-tcp"
