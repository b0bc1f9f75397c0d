// Package cpuid is what a processor says of itself as a table of CPUID leaves: its
// maker and model, the features in it by name, and the table's form in a
// VM's state. It decides nothing and asks no processor. The VMM compares guests'
// tables with the host's, and the daemon writes into a snapshot's manifest what its
// guest has seen. The trap: a table out of a saved state is foreign, so any leaf may be missing or hold anything.
package cpuid
