// Package routing is the ground that all routes share: the router, which checks each request's path and scope
// before a handler sees it and lists the route in the OpenAPI document; the part of the engine that a request
// may see; and inputs and answers of several routes. It serves no route itself. The OpenAPI document at
// /openapi.json is generated from the types of package api. The trap: add a route only with Route, RawRoute or
// PassRoute, and give it a row in Needs. Without the row all clients are refused.
package routing
