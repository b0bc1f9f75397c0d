// Package nic is the guest's network device, as the agent sees it: Configure sets it up once,
// when the parent boots, and a Link gives it the hardware address of each clone. What is set
// is package guestnet's; it owns no addresses of its own. The trap: everything that Configure
// sets must hold in every clone without being touched again, and a link that is set down
// loses its routes and neighbours, so a Link never does that.
package nic
