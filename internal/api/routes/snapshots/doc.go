// Package snapshots has the routes of snapshots: creation, lists, verification, comparison, export and import,
// copies between daemons, labels and retention, receipts, pools and publishing. GuestFiles are the kernels and
// root file systems that the operator may name by path. The package reads no snapshot itself; it calls the
// caller's part of the engine.
package snapshots
