// Package members translates and follows the packets between the members of a private network. All
// guests have the same address, so each member has another one in the eyes of the others. The
// package does no I/O and knows no policy: forkd-net reads packets from one member's link, asks the
// judge about new flows, and writes them to another's.
package members
