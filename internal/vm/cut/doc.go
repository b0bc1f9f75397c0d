// Package cut makes the captures of several VMs one consistent cut: there is an instant at which all of their guests
// are paused. The daemon holds a Cut, and each VMM a Member with a socket to it. A VMM reports that it is ready for
// the pause, pauses when all are, and resumes only after all have paused. If a member fails or leaves, the others
// learn it by the end of their sockets. The package does not pause anything itself. VMMs may lie: the cut of a
// lying VMM is worthless, and others lose at most Patience.
package cut
