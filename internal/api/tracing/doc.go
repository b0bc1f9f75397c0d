// Package tracing exports spans of the API's requests and of the engine's operations with
// OpenTelemetry, over OTLP/HTTP. It owns the tracer, the queue of spans, and the list of all spans and
// attributes (docs/operate/tracing.md). Spans of steps are made of durations that the engine measured;
// package httpapi passes them on. The trap: attributes leave the host, so no value may come from a
// request's body, except names of snapshots and sandboxes.
package tracing
