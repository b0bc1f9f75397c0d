// Package audit is the daemon's audit log: a JSON line for each action, in files that are only appended to,
// rolled over by size, and chained by hashes so that a change shows. Each writer (the operator, a tenant,
// anonymous clients) has a chain of files of its own, which only its lines can roll over. The package owns the
// files and the head beside each chain; it reads, filters, follows and verifies them as one log. It does not
// know the actions: httpapi adds entries, `forkd audit` reads them. Add never waits: entries that the disk does
// not take are counted, and the next line has the count. The trap: a chain has no secret, so a process that can
// write to all of the files can write another history; only a head that was noted elsewhere shows that
// (docs/operate/observe.md).
package audit
