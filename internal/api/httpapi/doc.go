// Package httpapi puts HTTP over the domain: routes, authentication, the
// mapping of errors, metrics, the audit log, listeners. It owns no sandbox and
// decides nothing about one; whatever it needs it asks of the Engine and the
// Images that it is given. Only the daemon (cmd/forkd) may call it. OpenAPI at
// /openapi.json is generated from the types of package api. The trap: a route
// must be added with route or rawRoute, which check its path parameters before
// anything else sees them and list it in the OpenAPI document.
package httpapi
