// Package httpapi serves the native API over HTTP. Its Server gives each family of routes (internal/api/routes) its
// parts, and joins them with authentication (auth), the audit log (auditing), metrics, answers (respond), proxies
// (guestproxy) and listeners (listen). It owns no sandbox and makes no decision about one. For all of that its
// routes call the given engine and image store. Only the daemon (cmd/forkd) may use it. The trap: the order of the
// handlers in Handler decides what a request meets before it is authenticated.
package httpapi
