// Package events keeps the last events of the daemon in memory for readers that follow them. Each owner,
// a tenant or the operator, has a bounded ring and a counter of its own, so that no tenant's activity
// removes another tenant's events or shows in its IDs. The operator's view merges all rings in order.
// The package owns the rings and the number that keeps IDs growing from one daemon to the next. It does
// not decide which view a reader gets (httpapi). Adding an event never waits for a reader; a reader that
// is too slow ends with ErrSlow. The trap: a reader that asks for dropped events gets one event, KindGap,
// in their place.
package events
