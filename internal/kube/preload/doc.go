// Package preload lets nodes copy a snapshot from each other until enough of them have it. A Preloader runs the copies,
// a few at a time, and remembers which nodes have failed. It asks another node after a failure, and the same one again
// after a pause.
//
// The caller looks at the nodes and calls Step, at an interval and after each copy. The trap: facts are older than
// copies, so a node that has just copied the snapshot counts although its facts do not list it yet.
package preload
