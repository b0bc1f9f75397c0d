// Package events keeps the daemon's last events in memory for readers that follow them. Each owner, a tenant or
// the operator, has a bounded ring and a separate counter. So no tenant's activity removes another tenant's
// events or shows in another tenant's IDs. The operator's view merges all rings in order. The package owns the
// rings and the number that keeps IDs growing from one daemon to the next. It does not choose a reader's view;
// httpapi does. Adding an event never waits for a reader. A reader that is too slow ends with ErrSlow. Beware: a
// reader that asks for dropped events gets one event, KindGap, in their place.
package events
