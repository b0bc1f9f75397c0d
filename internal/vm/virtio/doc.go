// Package virtio holds what every virtio device shares: the split queue, the
// virtio-mmio transport (virtio 1.2 §4.2, modern only) and the Device contract
// between them. It owns the registers, feature negotiation, interrupt status
// and ring positions; it does not own guest memory, eventfds' registration or
// interrupt routing, which come in as Memory, a file and a function. The VMM
// makes one MMIO per device; only the device folders below use Queue.
//
// The trap: everything read from a ring or a register is guest-controlled and
// may change while it is looked at. Copy a value out once, check the copy, use
// the copy. A driver that breaks the rules gets DEVICE_NEEDS_RESET, never a
// panic and never an endless loop.
package virtio
