// Package crash ends processes by kill -9 at every step of what changes the
// store or the list of sandboxes, and looks at what is found afterwards: what is
// listed is whole, what is not whole is not listed, nothing is left behind, and
// a source that can live does. It owns the operations and what must hold; the
// steps are package failpoint's, found by watching an operation pass them. It has
// no code of its own but tests. The trap: what must be gone is told by comparing
// names before and after, so a test must give back all that it made.
package crash
