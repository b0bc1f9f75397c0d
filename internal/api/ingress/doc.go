// Package ingress carries HTTP from outside to servers in sandboxes: which port of which
// sandbox a request is for, by its Host ({port}-{id}.DOMAIN) or by headers, and the request
// itself, with WebSockets, streams and gRPC. It knows no engine: it is given a Dialer. The
// daemon's listeners ask Match about each request before the API sees it; what matches
// never gets to the API, so no token of the API opens anything here, nor the other way
// round. The trap: both ends are strangers. Clients are anybody's unless a sandbox is
// private, and what a guest answers is passed on as it is, under a host name of its own.
package ingress
