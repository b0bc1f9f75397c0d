// Package events is what happens in the daemon, as others can follow it: a bounded list in memory,
// each event with an ID that grows. It owns the list and the counter that keeps IDs growing from one
// daemon to the next. It does not know who may see what: the reader's filter does (httpapi). Adding
// an event never waits for a reader; one that is too slow is told so and ended. The trap: a reader
// that asks for what the list has no more gets one event, KindGap, in place of what is missing.
package events
