// Package audit implements the daemon's audit log: a JSON line for each action, in append-only files that are
// rolled over by size and chained by hashes to reveal changes. Each writer (the operator, a tenant, anonymous
// clients) has its own chain of files, and only the writer's lines can roll that chain over. The package owns the
// files and the head beside each chain. It reads, filters, follows and verifies all chains as one log. It does
// not know the actions: internal/api/auditing adds entries, and `forkd audit` reads them. Add never waits: entries beyond the
// disk's speed are counted, and the next line records the count. Beware: a chain has no secret, so a process that
// can write to all of the files can forge a history. A head recorded elsewhere reveals this, and so do seals
// (sealer.go, docs/operate/observe.md).
package audit
