package api

// UpgradeTCP is the protocol of GET /v1/sandboxes/{id}/ports/{port}/connect. After the answer 101
// the connection leads to a server in the guest and carries bytes in both directions.
const UpgradeTCP = "forkd-tcp"
