// Package admission implements admission control. Before a VM is made, it compares the resources
// promised to that VM with the host's. A refusal names the insufficient resource, the available and
// needed amounts, and the setting to change. It counts memory, the store's disk, descriptors and
// threads, and checks the host's pressure (PSI). It makes and pauses no VMs, and never affects
// running ones.
//
// Promises to running sandboxes are not stored here. They are summed over the list of sandboxes for
// each request, so they end with a sandbox in every case, and a restarted daemon needs no records.
// The package stores only the resources of VMs being made, as Grants.
//
// A child enters the list before its part of the grant is released, and is counted twice for a
// moment. With the other order, two forks could be admitted for the same room.
package admission
