// Package tap is the network engine behind a tap device: it copies frames between the guest
// and the tap, with their headers, so that checksums and segmentation are left to whoever takes
// them. It opens nothing, and judges nothing: the device before it has checked what the guest
// says of its frames, the kernel behind it checks that again, and policy is the operator's.
//
// The trap: a network may begin to speak before the guest does. So an engine is made when the
// guest is let out, not at its first frame.
package tap
