// Package life enforces the deadlines and idle limits of sandboxes. It ends or pauses sandboxes
// when their deadline has passed or when they are idle, and resumes paused ones on the next
// request. It calls the operations through an interface (Operations). Deadlines are instants of the
// host's wall clock, stored in the sandbox's journal; idle times use a monotonic clock. A sandbox
// that is due may be used at the same moment. The pause therefore checks the idle time again after
// it has blocked new calls.
package life
