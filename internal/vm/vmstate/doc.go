// Package vmstate is the container of a VM's state outside its memory: named, versioned,
// checksummed sections (docs/inside/formats/vmstate.md). It does not know the content of sections;
// package vmm does. Decode reads bytes from disk or from another host and trusts none of them. A
// section's version comes from its writer, so readers must check it before they decode the section.
package vmstate
