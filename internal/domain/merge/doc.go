// Package merge merges the files of two sandboxes that descend from a common snapshot, as a version
// control system merges two branches. It finds the common ancestor, lets each guest list its files,
// decides per path, and writes the result into one of the sandboxes. The engine, as visible to the
// caller, forks the helpers and reaches the guests. Guests are hostile: a path names a file in a
// guest only, and is never opened on the host. Beware: a merge changes a running sandbox file by
// file, so it is not atomic.
package merge
