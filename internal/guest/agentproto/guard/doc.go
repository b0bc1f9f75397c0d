// Package guard puts limits on the HTTP answers of a guest's agent before a library parses them: on
// the frames of a stream, on the size of an answer and on the elements of a message. It understands
// Connect's framing but not the calls; execclient and the engine check the order of their messages.
// Any client of an agent on the host may use it.
//
// A reader of Connect drains an oversized answer to its end, and a guest may never end it. So the
// guard fails the read first.
package guard
