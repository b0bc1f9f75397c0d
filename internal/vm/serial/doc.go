// Package serial is the guest's console: a send-only 16550 UART (the console is a log without
// input), and the bounded file with its output. It does not know KVM: port accesses and the
// interrupt are functions. Linux polls LSR before every byte, so reads must be cheap.
package serial
