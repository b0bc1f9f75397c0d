// Package ingress carries HTTP from outside to servers in sandboxes. It finds the sandbox and the
// port of a request by its Host ({port}-{id}.DOMAIN) or by headers, and forwards the request,
// including WebSockets, streams and gRPC. It knows no engine, only a sandbox.PortDialer. The daemon's listeners
// call Match for each request before the API. A matching request never reaches the API, so a token
// of the API gives no access here, and a sandbox's token no access to the API. The trap: neither
// side is trusted. Any client can send requests unless a sandbox is private. A guest's answer is
// passed on unchanged, under a separate host name.
package ingress
