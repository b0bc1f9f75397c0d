// Package httpapi serves the domain over HTTP: the routes of the native API, and the server that joins
// them with authentication (auth), the audit log (auditing), metrics, answers (respond), proxies
// (guestproxy) and listeners (listen). It owns no sandbox and makes no decision about one. For all
// of that it calls the given Engine and Images. Only the daemon (cmd/forkd) may use it. The OpenAPI
// document at /openapi.json is generated from the types of package api. The trap: add a route only
// with routing.Route or RawRoute. They check its path parameters before any other code sees them, and list
// it in the OpenAPI document.
package httpapi
