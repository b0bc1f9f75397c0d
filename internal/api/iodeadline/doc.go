// Package iodeadline limits the time the daemon waits for an HTTP client: for the next bytes of a
// request's body, for the client to read a piece of an answer, and for both on a connection a
// handler took over. Its deadlines move with each piece, to serve slow but active clients. Between
// pieces there is no deadline. The package owns the deadlines of a request: handlers set theirs
// through http.ResponseController, which reaches the Writer. Package httpapi makes one Writer for
// each request. The other APIs share it. The trap: a deadline in the past is final, which is how
// the end of a key ends a request. After Finish the deadlines no longer change.
package iodeadline
