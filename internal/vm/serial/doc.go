// Package serial is the guest's console: a 16550 UART that only sends (the
// console is a log, nobody types), and the bounded file that keeps what it sent.
// It does not know KVM: port accesses and the interrupt come in as functions.
// The trap: Linux polls LSR before every byte, so reads must be cheap.
package serial
