// Package audit is the daemon's audit log: a file with a JSON line for each action, which is only
// appended to, rolled over by size, and chained by hashes so that a change shows. It owns the file,
// those that were rolled over, and the head beside them; it reads, filters, follows and verifies
// them. It does not know what actions there are: httpapi adds entries, `forkd audit` reads them.
// Whoever adds an entry never waits: what the disk does not take is counted, and the count stands
// in the next line. The trap: the chain has no secret, so whoever can write to all of the files can
// write another history; only a head that was noted elsewhere shows that (docs/audit.md).
package audit
