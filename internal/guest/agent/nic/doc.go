// Package nic is the agent's view of the guest's network device. Configure sets it up once, when
// the parent boots. A Link sets the hardware address of each clone. Package guestnet defines the
// addresses.
//
// All settings of Configure must hold in every clone without another change. A link that is set
// down loses its routes and neighbours, so a Link never does that.
package nic
