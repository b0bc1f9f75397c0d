// Package life keeps time for sandboxes: it ends or pauses those whose deadline has come or that
// nobody uses, and has paused ones go on when somebody wants something of them. It makes and ends
// nothing itself: it is handed the operations (Operations). Deadlines are instants of the host's wall
// clock and are kept in the sandbox's journal; for how long a sandbox was idle an
// unsettable clock tells. The trap: a sandbox that is due may be used at this very moment, so what is
// idle is looked at once more by the pause, when no call can begin any more.
package life
