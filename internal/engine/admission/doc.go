// Package admission is admission control: before a VM is made it counts what that VM is
// promised against what the host has, and refuses with what is short, how much there is and
// was needed, and which setting changes it. Memory, the store's disk, descriptors and
// threads are counted, and the host's pressure (PSI) is looked at. It makes and pauses
// nothing, and never touches what runs.
//
// What sandboxes that run were promised is not kept here: it is summed over their list
// whenever somebody asks, so that nothing is left over when one ends, however it does, and a
// daemon's restart needs no account of its own. Here is only what is being made: a Grant.
//
// The trap: a child is in the list before its part of the grant is released, and is counted
// twice for that moment. The other order would let two forks pass on the same room.
package admission
