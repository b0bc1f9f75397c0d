// Package iodeadline bounds the time that the daemon waits for a client of HTTP: for the next bytes of a request's body,
// for a piece of an answer to be taken, and for both on a connection that a handler took over. Its deadlines move with
// each piece, so that a slow client that moves on is served; between pieces there is none. It owns the deadlines of a
// request: handlers set theirs through http.ResponseController, which reaches the Writer. Package httpapi makes one
// Writer for each request; the APIs beside it share that. The trap: a deadline of the past is the last, which is how the
// end of a key ends a request, and after Finish nothing changes them.
package iodeadline
