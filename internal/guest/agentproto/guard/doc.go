// Package guard bounds the HTTP answers of a guest's agent before a library parses
// them: the frames of a stream, the size of an answer, the messages' elements. It knows
// Connect's framing and no call's meaning; execclient and the engine check the order of
// their messages. Any client of an agent on the host may use it. The trap: a
// reader of Connect drains an oversized answer to its end, which a guest need not send,
// so the guard fails the read first.
package guard
