// Package guest is what a caller wants of a running sandbox's guest: a sign of life, a
// program, code in its interpreter, a stream to its agent, its console, and what its
// memory costs. It changes no sandbox. Who is listed it asks package sandboxes. The
// trap: whatever a guest answers is hostile, and it may stop to answer at any point.
package guest
