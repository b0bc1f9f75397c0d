// Package vmstate is the container of a VM's state outside its memory: named,
// versioned, checksummed sections (docs/inside/formats/vmstate.md). It does not know
// what is in a section; package vmm does. Decode takes bytes from disk or from
// another host and trusts none of them. The trap: a section's version is its
// writer's, so readers must check it before they look inside.
package vmstate
