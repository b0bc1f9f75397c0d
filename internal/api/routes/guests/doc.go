// Package guests has the routes to programs in sandboxes: exec, eval, ports, services, and the agent's own API.
// Outputs of guests can be large, so it charges them to the request's memory account and encodes them in pieces.
package guests
