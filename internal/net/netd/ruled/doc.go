// Package ruled is forkd-net's judge. It combines netpolicy, netdns and the floor of the host for
// netd. It keeps the floor's list of the host's addresses up to date, and holds each VM's facts.
package ruled
