// Package guestfork serves guests that fork themselves, wait for their children and exit. It owns
// their calls to the host's port, the families, the reservations in a fork tree, and the deletion
// of the intermediate snapshots. A family holds a sandbox's children, including ended ones waiting
// to be collected. Package guestfork makes no snapshots and no sandboxes: operations do, through an
// interface declared here. Only package engine uses it. All input from the port is hostile, so
// every read, stored object and started operation has a limit.
package guestfork
