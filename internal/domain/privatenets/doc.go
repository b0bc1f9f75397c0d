// Package privatenets holds the private networks of tenants, and the sandboxes in them. The names are in
// a file. The members are in the journals of their sandboxes, from which the engine adopts them. The
// package knows no packets: forkd-net learns a membership with the VM's wire.
package privatenets
