// Package daemon has the routes of the daemon itself: health, readiness, version, metrics, capacity, the node in a
// cluster, drain, audit log and events. Most of them are the operator's. Streams end the logs and events that
// clients follow when the server stops.
package daemon
