// Package volume stores volumes: named disks of tenants which outlive the sandboxes that use them. A volume
// is a stack: layers at the bottom, overlay files over them, the top one writable (package overlay). A clone
// shares all files below the tops by hard links, so it takes no time and no space. The package knows no VM:
// a holder opens the stack for one, and reports the stack after each change. Beware: the record of a held
// volume and the journal of its holder may differ after a crash. Each is complete on its own, and
// Reconcile makes the record follow the journal.
package volume
