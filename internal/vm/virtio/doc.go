// Package virtio implements the common parts of all virtio devices: the split queue, the
// virtio-mmio transport (virtio 1.2 §4.2, modern only) and the Device contract between them. It
// owns the registers, feature negotiation, interrupt status and ring positions. The caller provides
// guest memory, the kick eventfd and the interrupt as a Memory, a file and a function. The VMM
// creates one MMIO per device. Only the device packages below use Queue.
//
// All values read from a ring or a register are guest-controlled and may change between two reads.
// Copy a value once, check the copy, use the copy. A driver that breaks the rules gets
// DEVICE_NEEDS_RESET, never a panic or an endless loop.
package virtio
