// Package cpuid handles a processor's description as a table of CPUID leaves: its maker and model,
// its features by name, and the encoding of the table in a VM's state. It makes no policy decisions
// and queries no processor. The VMM compares guests' tables with the host's, and the daemon records
// the guest's processor in a snapshot's manifest. A table from a saved state is untrusted: any leaf
// may be missing or hold any value.
package cpuid
