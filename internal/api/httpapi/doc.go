// Package httpapi serves the domain over HTTP: routes, authentication, the mapping of errors,
// metrics, the audit log and listeners. It owns no sandbox and makes no decision about one. For all
// of that it calls the given Engine and Images. Only the daemon (cmd/forkd) may use it. The OpenAPI
// document at /openapi.json is generated from the types of package api. The trap: add a route only
// with route or rawRoute. They check its path parameters before any other code sees them, and list
// it in the OpenAPI document.
package httpapi
