// Package ruled is forkd-net's judge: it puts netpolicy, netdns and the floor of
// the host together, for netd to ask. It owns the addresses that the floor knows
// to be the host's, which it follows as they change, and each VM's facts.
package ruled
