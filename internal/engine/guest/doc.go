// Package guest serves requests to a running sandbox's guest: a ping, a program, code in its
// interpreter, a stream to its agent, its console, and its memory use. It changes no sandboxes and
// finds them through package sandboxes. All answers of a guest are hostile, and it may stop
// answering at any point.
package guest
